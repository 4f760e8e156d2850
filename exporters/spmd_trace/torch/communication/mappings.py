"""Custom autograd functions whose communication says what they are.

A function that does nothing forward and sums its gradient is the step from one copy to copies that
are used separately (Megatron's f: `convert` from I to R); one that sums forward and hands its
gradient on is its conjugate (an all_reduce to I).
"""

from ..document import Op, Program
from ..values import Value

# What does not change what a value means.
_SAME = ("aten.view.", "aten.alias.", "aten.detach.", "aten.clone.", "aten._to_copy.", "alias")


def _working(ops: list[Op]) -> list[Op]:
    return [op for op in ops if not op.name.startswith(_SAME) and not _by_one(op)]


def _by_one(op: Op) -> bool:
    """A copy by way of arithmetic: `x * 1`."""
    number = op.ins[1] if len(op.ins) == 2 else None
    return op.name.startswith(("aten.mul.", "aten.div.")) and number in (1, 1.0) and not op.mut


def _own(ops: list[Op]) -> list[Op]:
    """Without the addition of another gradient of the same value, which autograd does while the
    function runs."""
    made = {id(value) for op in ops for value in op.outs}
    while ops and ops[-1].name.startswith("aten.add"):
        if sum(id(one) in made for one in ops[-1].ins if isinstance(one, Value)) != 1:
            break
        ops = ops[:-1]
    return ops


def _is_sum(ops: list[Op]) -> bool:
    if len(ops) != 1 or ops[0].name.rstrip("_") != "all_reduce":
        return False
    return ops[0].attrs.get("op", "sum") == "sum" and not {"src", "dst"} & ops[0].attrs.keys()


def state(program: Program) -> None:
    """States the target of the functions of a recorded program that are known by what they do."""
    forward: dict[int, list[Op]] = {}
    for op in program.ops:
        if op.call is not None and op.phase == "fwd":
            forward.setdefault(op.call, []).append(op)
    backward: dict[int, list[Op]] = {}
    for op in program.ops:
        if op.phase == "bwd" and op.bwd_of is not None and op.bwd_of.call is not None:
            backward.setdefault(op.bwd_of.call, []).append(op)
    for call, ops in forward.items():
        there, back = _working(ops), _working(_own(backward.get(call, [])))
        if not there and _is_sum(back) and program.axes_of(back[0]):
            axes = program.axes_of(back[0])
            last = ops[-1]
            last.name, last.mut = "convert", []
            last.attrs = {"axis": axes if len(axes) > 1 else axes[0], "src": "I", "dst": "R"}
            last.grad = True
            back[0].attrs["dst"] = "I"
        elif not back and _is_sum(there) and program.axes_of(there[0]):
            there[0].attrs["dst"] = "I"
            for op in ops:
                op.grad = True
