"""What DTensor does with one operation whose operands have given placements.

DTensor decides before an operation runs whether its operands stay as they are or are redistributed
first. The decisions are recorded without a GPU and without other processes, for comparison with
the verdicts of the checker: `spmd-trace dtensor -o decisions.json`.
"""
