"""Recording a training script as it is: `spmd-trace record train.py`.

The script runs in a process of its own, as one rank of a job whose other ranks are not there.
`world` stands in for the launcher, the process groups and the GPUs, `step` finds the step that is
recorded, `roles` says what the values are that it starts from, `axes` makes a mesh of the groups of
ranks that it uses.
"""
