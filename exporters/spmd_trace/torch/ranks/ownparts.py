"""The part of a tensor that a rank takes for itself: `x.chunk(n)[rank]`, `x[rank::n]`, `x.view(n,
-1)[rank]`, or the numbers `torch.arange(rank * k, (rank + 1) * k)`, or `torch.arange(k) + rank *
k`.

One rank's program only shows that a part was taken. Where the others take other parts, each its
own, the operation is a `convert` to a shard: of what is whole on all ranks, each goes on with its
block. Every n-th row counts as such a block: only the order of the rows in the whole differs, and
nothing that is judged depends on it. Where each rank takes the part of the rank so many before it,
as of positions that go with a block which has come round a ring, the parts are moved on by as many
first.
"""

import collections
import dataclasses
import itertools
import math

from ..document import Op, Program
from ..communication.mesh import Axis
from ..values import Value

_SPLITS = ("aten.split.", "aten.split_with_sizes.", "aten.chunk.", "aten.tensor_split.")
_MAKES = "aten.arange."


@dataclasses.dataclass
class Part:
    """Piece `index` of `pieces` equal ones along a dimension; of numbers, which have no end,
    `pieces` is None. So it is of a slice that is no piece of all rows, but perhaps of some of them
    (`every` is its step): then the index is where it begins.
    """

    name: str
    op: Op
    out: Value
    dim: int
    pieces: int | None
    index: int
    every: int | None = None

    @property
    def length(self) -> int:
        """How far the parts of two ranks lie apart that follow one another."""
        return self.out.shape[self.dim] if self.pieces is None and self.every in (None, 1) else 1


def found(program: Program) -> list[Part]:
    """All that one rank can tell, in the order of the program."""
    used = {id(value) for op in program.ops for value in op.operands()}
    used |= {id(entry["value"]) for entry in program.outputs}
    written = _written(program)
    parts: list[Part] = []
    # By the line and the operation: on some ranks, collectives are recorded with copies of their
    # own, so that the same part is not everywhere the n-th of the program.
    times: collections.Counter = collections.Counter()
    numbers: dict[int, int] = {}  # by value: with what the numbers from it on begin
    for op in program.ops:
        part = _numbers(op, numbers)
        if part is not None:
            numbers[id(part.out)] = part.index
        if part is None and op.ins and isinstance(op.ins[0], Value):
            part = _split(op, used) or _slice(op) or _entry(op)
        # `tensor_split` is a slice for each rank, of which one is used.
        if part is not None and id(part.out) in used and id(part.out) not in written:
            made = f"{program.locations.text(op.loc)}{op.name}"
            parts.append(dataclasses.replace(part, name=f"part {made} {times[made]}"))
            times[made] += 1
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
    if not op.name.startswith("aten.slice.") or op.kw:
        return None
    whole, out = op.ins[0].shape, op.outs[0].shape
    dim = op.attrs.get("dim", 0) % len(whole)
    start, step, length = op.attrs.get("start") or 0, op.attrs.get("step", 1), out[dim]
    numbers = all(isinstance(one, int) for one in (start, step, length, whole[dim]))
    if not numbers or not 0 < length < whole[dim] or start < 0:
        return None
    pieces, rest = divmod(whole[dim], length)
    if not rest and step == pieces and start < step:
        return Part("", op, op.outs[0], dim, pieces, start)
    if not rest and step == 1 and not start % length:
        return Part("", op, op.outs[0], dim, pieces, start // length)
    # Of data alone: the backward of a slice tells of all of its operand.
    some = step >= 1 and op.ins[0].requires_grad is False
    return Part("", op, op.outs[0], dim, None, start, step) if some else None


def _entry(op: Op) -> Part | None:
    """One of as many entries as there are ranks: a block of one, without its dimension."""
    if not op.name.startswith("aten.select.") or op.kw:
        return None
    dim, index = op.attrs.get("dim", 0) % len(op.ins[0].shape), op.attrs.get("index", 0)
    entries = op.ins[0].shape[dim]
    if not isinstance(index, int) or not isinstance(entries, int) or entries < 2:
        return None
    return Part("", op, op.outs[0], dim, entries, index % entries)


def _numbers(op: Op, numbers: dict[int, int]) -> Part | None:
    """The numbers from one to another, or those of another operation with one added to each."""
    if op.name.startswith("aten.add.") and len(op.ins) == 2 and op.attrs.get("alpha", 1) == 1:
        start = numbers.get(id(op.ins[0]))
        if start is not None and isinstance(op.ins[1], int) and op.outs[0].dtype[0] == "i":
            return Part("", op, op.outs[0], 0, None, start + op.ins[1])
    start, end = op.attrs.get("start", 0), op.attrs.get("end")
    if not op.name.startswith(_MAKES) or op.attrs.get("step", 1) != 1 or op.ins or op.kw:
        return None
    if not isinstance(start, int) or not isinstance(end, int) or end <= start:
        return None
    return Part("", op, op.outs[0], 0, None, start)


def convert(
    program: Program,
    parts: list[Part],
    kinds: dict[str, dict[str, str]],
    steps: dict[str, dict[str, int]],
    turns: dict[str, dict[str, list[int]]],
) -> None:
    """States the parts that differ along some axes, and are this rank's along them. By name and
    axis: `kinds`, and in even `steps` of how much the index grows from rank to rank; in `turns`,
    which parts ranks have that are those of ranks before them.
    """
    for number, part in enumerate(parts):
        differs = [
            axis for axis in program.mesh.axes if kinds.get(part.name, {}).get(axis.name) == "V"
        ]
        grows = steps.get(part.name, {})
        order = (
            _order(differs, grows, part.length)
            if all(one.name in grows for one in differs)
            else None
        )
        turned = turns.get(part.name, {}).get(differs[0].name) if len(differs) == 1 else None
        if order is None and turned and _state_turned(program, part, differs[0], turned):
            continue
        if order is None:
            # Whatever numbers are, they are not equal.
            if part.pieces is None and part.every is None and differs:
                program.from_outside(part.out, f"part.{number}", kinds[part.name])
            continue
        first = part.index - sum(
            grows[axis.name] * program.mesh.coordinate(axis.name, program.rank) for axis in differs
        )
        if part.pieces is not None and (
            part.pieces != math.prod(axis.size for axis in order) or first
        ):
            continue
        if part.every is not None and not _runs(part, order, first):
            continue
        _state(program, part, order, first)


def _runs(part: Part, order: list[Axis], first: int) -> bool:
    """Whether the slices of the ranks are together one run of rows, from the first on."""
    ranks, extent = math.prod(axis.size for axis in order), part.op.ins[0].shape[part.dim]
    together = bool(order) and part.every in (1, ranks)
    return together and 0 <= first <= extent - ranks * part.out.shape[part.dim]


def _order(axes: list[Axis], grows: dict[str, int], length: int) -> list[Axis] | None:
    """Axes in whose order, the last one fastest, the ranks have their parts behind one another;
    None: in no order."""
    for order in itertools.permutations(axes):
        reach = length
        for axis in reversed(order):
            if grows[axis.name] != reach:
                break
            reach *= axis.size
        else:
            return list(order) or None
    return None


def _state_turned(program: Program, part: Part, axis: Axis, turned: list[int]) -> bool:
    """Whether it is the part of the rank so many before on the axis; states it then."""
    first, step, back = turned
    if part.every is not None or step != part.length:
        return False
    if part.pieces is not None and (part.pieces != axis.size or first):
        return False
    _state(program, part, [axis], first, back)
    return True


def _state(program: Program, part: Part, order: list[Axis], first: int, back: int = 0) -> None:
    op, out = part.op, part.out
    if part.every is not None:
        operand, before = op.ins[0], []
        run = math.prod(axis.size for axis in order) * out.shape[part.dim]
        if run != operand.shape[part.dim]:
            shape = [run if at == part.dim else n for at, n in enumerate(operand.shape)]
            made = Value(out.dtype, shape, requires_grad=operand.requires_grad, alias_of=operand)
            words = {"dim": part.dim, "start": first, "length": run}
            name = "aten.narrow.default"
            before = [dataclasses.replace(op, name=name, ins=[operand], outs=[made], attrs=words)]
            operand = made
    elif part.pieces is None:
        whole = math.prod(axis.size for axis in order) * out.shape[0]
        made = Value(out.dtype, [whole], requires_grad=False)
        words = {"start": first, "end": first + whole, "dtype": out.dtype}
        operand = made
        before = [
            dataclasses.replace(op, name="aten.arange.start", ins=[], outs=[made], attrs=words)
        ]
    else:
        operand, before = op.ins[0], []
    shape = list(operand.shape)
    if back:
        moved = Value(out.dtype, list(shape), requires_grad=operand.requires_grad)
        words = {"shifts": [back * shape[part.dim] // order[0].size], "dims": [part.dim]}
        before.append(
            dataclasses.replace(
                op, name="aten.roll.default", ins=[operand], outs=[moved], attrs=words
            )
        )
        operand = moved
    for axis in order:
        shape[part.dim] //= axis.size
        block = Value(out.dtype, list(shape), requires_grad=operand.requires_grad)
        words = {"axis": axis.name, "dst": f"S({part.dim})"}
        before.append(
            dataclasses.replace(op, name="convert", ins=[operand], outs=[block], attrs=words)
        )
        operand = block
    out.alias_of = None
    if operand.shape == out.shape:
        before[-1].outs = [out]
    else:
        # With the next dimension the entry of one is the rank's block of both.
        out.alias_of = operand
        merged = {"size": list(out.shape)}
        before.append(
            dataclasses.replace(
                op, name="aten.view.default", ins=[operand], outs=[out], attrs=merged
            )
        )
    # The operation keeps its identity: its backward names it.
    last = before.pop()
    op.name, op.ins, op.outs, op.attrs = last.name, last.ins, last.outs, last.attrs
    place = program.ops.index(op)
    program.ops[place:place] = before
