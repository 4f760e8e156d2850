"""Numbers and operations that depend on the rank, found by recording neighbouring ranks as well.

A literal that differs along an axis becomes arithmetic on `axis_index`, the size of a tensor a
symbol; an operation that a neighbour does not run is marked. Equal collectives in equal order are
required: otherwise the ranks would wait for each other forever.
"""

import dataclasses
import difflib

from ..document import Op, Program
from ..operands import flatten
from ..values import Value

_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")


@dataclasses.dataclass
class Neighbour:
    """The same program on the rank at `coordinate` of `axis`, else where the traced rank is."""

    axis: str
    coordinate: int
    program: Program


def resolve(program: Program, neighbours: list[Neighbour]) -> int:
    """Replaces rank-dependent literals of `program`; returns how many there were."""
    aligned = [_align(program, neighbour) for neighbour in neighbours]
    extents = _Extents(program)
    extents.find(neighbours, aligned)
    rewritten: list[Op] = []
    made: dict[tuple, Value] = {}
    count = 0
    for index, op in enumerate(program.ops):
        others = [(n, pairs.get(index)) for n, pairs in zip(neighbours, aligned)]
        op.rank_only |= any(other is None for _, other in others)
        matched = [(n, other) for n, other in others if other is not None]
        prelude = _Prelude(program, op, made, extents)
        op.ins, changed = _operands(op.ins, [(n, o.ins) for n, o in matched], prelude)
        for name in list(op.attrs):
            seen = [(n, o.attrs.get(name)) for n, o in matched]
            if all(value == op.attrs[name] for _, value in seen):
                continue
            changed += 1
            if (size := extents.attribute(op.attrs[name], seen)) is not None:
                op.attrs[name] = size
            else:
                op.kw[name] = prelude.value(op.attrs.pop(name), seen)
        count += changed
        rewritten += [*prelude.ops, op]
    program.ops = rewritten
    return count


def _align(program: Program, neighbour: Neighbour) -> dict[int, Op]:
    """The operation of the neighbour for each index of an operation that both ranks run."""
    shared = [index for index, op in enumerate(program.ops) if not op.rank_only]
    others = [op for op in neighbour.program.ops if not op.rank_only]
    mine = [_outline(program.ops[index]) for index in shared]
    theirs = [_outline(op) for op in others]
    calls = [[n for n, *_ in names if n.startswith(_COLLECTIVES)] for names in (mine, theirs)]
    if calls[0] != calls[1]:
        place = f"{neighbour.axis} = {neighbour.coordinate}"
        raise RuntimeError(f"the rank at {place} runs other collectives: the ranks would diverge")
    if mine == theirs:
        return dict(zip(shared, others))
    matcher = difflib.SequenceMatcher(None, mine, theirs, autojunk=False)
    pairs = {}
    for start, other, size in matcher.get_matching_blocks():
        for offset in range(size):
            pairs[shared[start + offset]] = others[other + offset]
    return pairs


def _outline(op: Op) -> tuple:
    """What an operation looks like without its numbers."""
    return (op.name, op.scope, len(op.outs))


def _operands(items: list, others: list, prelude: "_Prelude") -> tuple[list, int]:
    """Rewrites one operand list; `others` are the lists of the neighbours."""
    result, count = [], 0
    for position, item in enumerate(items):
        seen = [(n, theirs[position]) for n, theirs in others if position < len(theirs)]
        if isinstance(item, list):
            item, changed = _operands(item, seen, prelude)
            count += changed
        elif _is_number(item) and any(value != item for _, value in seen):
            size = prelude.extents.attribute(item, seen)
            item = prelude.value(item, seen) if size is None else size
            count += 1
        result.append(item)
    return result, count


def _is_number(item) -> bool:
    return isinstance(item, (int, float)) and not isinstance(item, bool)


class _Extents:
    """Sizes of tensors that differ between ranks: a symbol for each combination of sizes."""

    def __init__(self, program: Program):
        self.program = program
        self.known: dict[str, dict[int, int]] = {}  # per symbol: size on each rank

    def find(self, neighbours: list[Neighbour], aligned: list[dict[int, Op]]) -> None:
        """Puts symbols into the shapes of all results."""
        for index, op in enumerate(self.program.ops):
            pairs = [(n, pairs[index]) for n, pairs in zip(neighbours, aligned) if index in pairs]
            if any(len(flatten(o.ins)) != len(flatten(op.ins)) for _, o in pairs):
                continue  # a list with a member more or less, as of norms that count on one rank
            for position, value in enumerate(op.outs):
                for dim, here in enumerate(value.shape):
                    seen = [(n, other.outs[position].shape) for n, other in pairs]
                    seen = [(n, shape[dim]) for n, shape in seen if dim < len(shape)]
                    if any(there != here for _, there in seen):
                        value.shape[dim] = self._name(here, seen) or self._define(here, seen)

    def attribute(self, item, seen: list[tuple[Neighbour, object]]):
        """A number, or a list of numbers, with symbols for sizes; None if it is something else."""
        if isinstance(item, list):
            if any(not isinstance(t, list) or len(t) != len(item) for _, t in seen):
                return None
            columns = [[(n, there[i]) for n, there in seen] for i in range(len(item))]
            sizes = [self.attribute(one, column) for one, column in zip(item, columns)]
            return None if None in sizes else sizes
        if all(there == item for _, there in seen):
            return item
        name = self._name(item, seen) if isinstance(item, int) else None
        return None if name is None else {"sym": name}

    def _rank(self, neighbour: Neighbour) -> int:
        return neighbour.program.rank

    def _name(self, here: int, seen: list[tuple[Neighbour, int]]) -> str | None:
        """The symbol for these sizes, or a multiple of one."""
        for name, sizes in self.known.items():
            size = sizes[self.program.rank]
            times = here // size if size else 0
            there = [(sizes.get(self._rank(n)), value) for n, value in seen]
            if times * size == here and all(s is not None and times * s == v for s, v in there):
                return name if times == 1 else f"{name} * {times}"
        return None

    def _define(self, here: int, seen: list[tuple[Neighbour, int]]) -> str:
        name = f"n{len(self.known)}"
        sizes = {self._rank(n): there for n, there in seen}
        self.known[name] = {self.program.rank: here} | sizes
        self.program.symbols[name] = {"min": 0, "hint": here}
        return name


class _Prelude:
    """The operations that compute rank-dependent numbers before `op`."""

    def __init__(self, program: Program, op: Op, made: dict[tuple, Value], extents: "_Extents"):
        self.program, self.op, self.made, self.extents = program, op, made, extents
        self.ops: list[Op] = []

    def value(self, here, seen: list[tuple[Neighbour, object]]) -> Value:
        """base + sum of slope * axis_index, checked against every neighbour."""
        slopes: dict[str, float] = {}
        for neighbour, there in seen:
            if not _is_number(here) or not _is_number(there):
                raise NotImplementedError(f"{self.op.name}: a rank-dependent {here!r}")
            steps = neighbour.coordinate - self._coordinate(neighbour.axis)
            slope = (there - here) / steps
            if slopes.setdefault(neighbour.axis, slope) != slope:
                raise NotImplementedError(
                    f"{self.op.name}: {here} is not linear in the coordinate on {neighbour.axis}"
                )
        whole = isinstance(here, int)
        base, total = here, None
        for axis, slope in slopes.items():
            slope = int(slope) if whole else slope
            if slope:
                base -= slope * self._coordinate(axis)
                scaled = self._emit("mul", [self._index(axis), slope], whole)
                total = scaled if total is None else self._emit("add", [total, scaled], whole)
        return self._emit("add", [total, base], whole) if base else total

    def _coordinate(self, axis: str) -> int:
        return self.program.mesh.coordinate(axis, self.program.rank)

    def _index(self, axis: str) -> Value:
        kinds = {a.name: "V" if a.name == axis else "R" for a in self.program.mesh.axes}
        return self._emit("axis_index", [], True, {"axis": axis}, {"type": kinds})

    def _emit(self, name, ins, whole: bool, attrs=None, claims=None) -> Value:
        key = (name, *(id(i) if isinstance(i, Value) else i for i in ins), str(attrs))
        if key in self.made:
            return self.made[key]
        value = Value("i64" if whole else "f32", [], claims=claims or {}, requires_grad=False)
        op = self.op
        made = Op(name, ins, [value], attrs or {}, phase=op.phase, grad=op.grad)
        made.loc, made.scope, made.bwd_of = op.loc, op.scope, op.bwd_of
        made.context = op.context
        self.ops.append(made)
        self.made[key] = value
        return value
