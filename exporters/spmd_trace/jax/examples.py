"""The traces of examples/jax."""

from .document import dumps
from .programs import PROGRAMS
from .record import record, record_gradients

# What each file holds: a program, and whether with its gradients; what is wrong is forward.
TRACES = {
    "fsdp_tp.spmd.json": ("fsdp_tp", True),
    "ring_attention.spmd.json": ("ring_attention", True),
    "explicit_unreduced.spmd.json": ("explicit_unreduced", True),
    "broken.spmd.json": ("branch_by_rank", False),
}


def text(name: str, gradients: bool) -> str:
    """The trace of one of the programs."""
    program = PROGRAMS[name]
    function, arguments = program.callable(), program.arguments()
    if not gradients:
        recorded = record(function, *arguments, mesh=program.mesh)
        for body in [recorded.main, *recorded.main.bodies()]:
            for op in body.ops:
                op.expected = False  # JAX's types are not what a mistake leads to
        return dumps(recorded)
    argnums = program.differentiated()
    return dumps(record_gradients(function, *arguments, mesh=program.mesh, argnums=argnums))
