"""The part of a tensor that a rank takes for itself: `x.chunk(n)[rank]`, `x[rank * k : (rank + 1) * k]`.

One rank's program only shows that a part was taken. Where the others take other parts, each its own, the
operation is a `convert` to a shard: of what is whole on all ranks, each goes on with its block.
"""

import dataclasses

from ..document import Op, Program
from ..values import Value

_SPLITS = ("aten.split.", "aten.split_with_sizes.", "aten.chunk.", "aten.tensor_split.")


@dataclasses.dataclass
class Part:
    """Piece `index` of `pieces` equal ones along a dimension."""

    name: str
    op: Op
    out: Value
    dim: int
    pieces: int
    index: int


def found(program: Program) -> list[Part]:
    """All that one rank can tell, in the order of the program."""
    used = {id(value) for op in program.ops for value in op.operands()}
    used |= {id(entry["value"]) for entry in program.outputs}
    written = _written(program)
    parts: list[Part] = []
    for op in program.ops:
        if not op.ins or not isinstance(op.ins[0], Value):
            continue
        part = _split(op, used) or _slice(op)
        if part is not None and id(part.out) not in written:
            parts.append(dataclasses.replace(part, name=f"part.{len(parts)}"))
    return parts


def _written(program: Program) -> set[int]:
    """What is written in place, or through: a part that is a place to write to is not taken."""
    written: set[int] = set()
    for op in program.ops:
        operands = op.operands()
        for value in (operands[place] for place in op.mut if place < len(operands)):
            while value is not None:
                written.add(id(value))
                value = value.alias_of
    return written


def _split(op: Op, used: set[int]) -> Part | None:
    live = [place for place, out in enumerate(op.outs) if id(out) in used]
    if not op.name.startswith(_SPLITS) or len(op.outs) < 2 or len(live) != 1:
        return None
    if any(out.shape != op.outs[0].shape for out in op.outs):
        return None
    dim = op.attrs.get("dim", 0) % len(op.ins[0].shape)
    return Part("", op, op.outs[live[0]], dim, len(op.outs), live[0])


def _slice(op: Op) -> Part | None:
    if not op.name.startswith("aten.slice.") or op.kw or op.attrs.get("step", 1) != 1:
        return None
    whole, out = op.ins[0].shape, op.outs[0].shape
    dim = op.attrs.get("dim", 0) % len(whole)
    start, length = op.attrs.get("start") or 0, out[dim]
    numbers = all(isinstance(one, int) for one in (start, length, whole[dim]))
    if not numbers or not 0 < length < whole[dim] or whole[dim] % length or start % length:
        return None
    return Part("", op, op.outs[0], dim, whole[dim] // length, start // length)


def convert(program: Program, parts: list[Part], kinds: dict[str, dict[str, str]]) -> None:
    """States the parts that differ along one axis, and are this rank's along it. `kinds`: by name and axis."""
    for part in parts:
        differs = [axis for axis in program.mesh.axes if kinds.get(part.name, {}).get(axis.name) == "V"]
        if len(differs) != 1 or differs[0].size != part.pieces:
            continue
        axis = differs[0]
        if program.mesh.coordinate(axis.name, program.rank) != part.index:
            continue
        part.op.name = "convert"
        part.op.attrs = {"axis": axis.name, "dst": f"S({part.dim})"}
        part.op.outs = [part.out]
        part.out.alias_of = None
