"""Parts of a tensor that each rank takes for itself: a slice that begins at `axis_index(axis) *
rows`.

Where the ranks of an axis take equal parts, each its own, and nothing is left over, the tensor is
cut along the axis: a `convert` to S(dim). A part that is put in its place among zeros is an addend
of the whole. `axis_index(axis) * rows + arange(rows)` is a part of the numbers of all rows; where a
rank begins at the rows of one that is so many ranks before it, as `(rank - turn) % ranks * rows`
does, it is a part of these numbers turned by as many.
"""

import math
import operator

import numpy as np

from .document import Value

_MOST_NUMBERS = 4096  # of an `iota` that is followed
# What programs compute of the number of a rank. `rem` has the sign of the dividend.
_COMPUTED = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "rem": np.fmod,
    "max": np.maximum,
    "min": np.minimum,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "not": np.invert,
    "select_n": lambda which, *cases: np.choose(which.astype(int), cases),
    "convert_element_type": lambda of: of,
}


class OwnParts:
    """What integers of a program are the first element of a rank's own part."""

    def __init__(self, sizes: dict[str, int]):
        self.sizes = sizes
        self.first: dict[int, tuple[list[str], int]] = {}  # values: axes, elements of a part
        self.counted: dict[int, int] = {}  # values: how many numbers, from 0
        self.negative: set[int] = set()  # values: whether one of them is below 0, which none is
        self.zero: set[int] = set()  # values: tensors of zeros
        # Values: integers, or truths, that are known: of each rank along an axis (none: of any).
        self.known: dict[int, tuple[str | None, np.ndarray]] = {}
        self._alive: list[Value] = []  # as long as there are numbers of them by `id`

    def index(self, value: Value, axes: list[str]) -> None:
        self.first[id(value)] = (axes, 1)
        if len(axes) == 1:
            self.known[id(value)] = (axes[0], np.arange(self.sizes[axes[0]])[:, None])

    def learn(self, name: str, ins: list, outs: list[Value], attrs: dict) -> None:
        """An operation on operands that may be such integers."""
        self._alive += outs
        if len(outs) == 1 and (made := self._computed(name, ins, outs[0], attrs)) is not None:
            self.known[id(outs[0])] = made
        known = [self.first.get(id(item)) for item in ins]
        if name == "mul" and len(ins) == 2 and any(known) and any(map(_whole, ins)):
            axes, step = known[0] or known[1]
            self.first[id(outs[0])] = (axes, step * next(one for one in ins if _whole(one)))
        elif name in ("convert_element_type", "reshape", "squeeze") and known and known[0]:
            self.first[id(outs[0])] = known[0]
        elif name == "iota" and len(outs[0].shape) == 1:
            self.counted[id(outs[0])] = outs[0].shape[0]
        elif name == "lt" and known[0] and ins[1] == 0:
            self.negative.add(id(outs[0]))
        elif name == "select_n" and id(ins[0]) in self.negative and known[1]:
            self.first[id(outs[0])] = known[1]

    def cut(self, name: str, ins: list, outs: list[Value]) -> tuple[Value, dict] | None:
        """The operand and the attributes of the `convert` that the operation is."""
        if name == "dynamic_slice":
            found = self._along(ins[0], outs[0], ins[1:])
            return found and (ins[0], {"axis": found[0], "dst": f"S({found[1]})"})
        if name == "dynamic_update_slice" and id(ins[0]) in self.zero:
            found = self._along(ins[0], ins[1], ins[2:])
            words = found and {"axis": found[0], "src": f"S({found[1]})", "dst": "P"}
            return words and (ins[1], words)
        return None

    def _computed(self, name: str, ins: list, out: Value, attrs: dict):
        """What is known of the result: by rank (one row: on all alike), and by element."""
        kind = np.int64 if out.dtype.startswith(("i", "u")) else bool
        if kind is bool and out.dtype != "bool":
            return None
        if name == "iota" and len(out.shape) == 1 and out.shape[0] <= _MOST_NUMBERS:
            return None, np.arange(out.shape[0])[None]
        if name == "full" and math.prod(out.shape) == 1 and _is_integer(attrs["fill_value"]):
            return None, np.array([[attrs["fill_value"]]])
        found = [
            self.known.get(id(one))
            if isinstance(one, Value)
            else (None, np.array([[one]]))
            if _is_integer(one)
            else None
            for one in ins
        ]
        if not found or None in found:
            return None
        axes = {axis for axis, _ in found if axis is not None}
        if len(axes) > 1:
            return None
        (axis,) = axes or {None}
        numbers = [of for _, of in found]
        if name == "slice" and len(ins[0].shape) == 1:
            begin, end = attrs["start_indices"][0], attrs["limit_indices"][0]
            return axis, numbers[0][:, begin : end : (attrs.get("strides") or [1])[0]]
        if name in ("squeeze", "reshape", "broadcast_in_dim"):
            return (axis, numbers[0]) if math.prod(out.shape) == numbers[0].shape[1] else None
        if name not in _COMPUTED or any(of.shape[1] != 1 for of in numbers):
            return None
        if name == "rem" and (numbers[1] == 0).any():
            return None
        return axis, np.asarray(_COMPUTED[name](*numbers)).astype(kind)

    def numbers(self, name: str, ins: list) -> tuple[list[str], int, int] | None:
        """The axes along which a rank takes a part of the numbers from 0; how many all are; by how
        many they are turned before, so that it is the part of another rank."""
        if name != "add" or len(ins) != 2:
            return None
        for start, counted in (ins, reversed(ins)):
            if id(counted) not in self.counted:
                continue
            if id(start) in self.first:
                axes, step = self.first[id(start)]
                if self.counted[id(counted)] == step:
                    return axes, step * math.prod(self.sizes[axis] for axis in axes), 0
            axis, first = self.known.get(id(start), (None, None))
            if axis is not None:
                step, ranks = self.counted[id(counted)], self.sizes[axis]
                back = -int(first[0, 0]) // step % ranks
                if ((np.arange(ranks) - back) % ranks * step == first[:, 0]).all():
                    return [axis], step * ranks, back * step
        return None

    def _along(self, whole: Value, part: Value, starts: list) -> tuple[list[str], int] | None:
        """The axes, and the dimension of which the part is a rank's own one."""
        own = [dim for dim, start in enumerate(starts) if id(start) in self.first]
        if len(own) != 1 or not isinstance(part, Value):
            return None
        (dim,) = own
        axes, step = self.first[id(starts[dim])]
        ranks = math.prod(self.sizes[axis] for axis in axes)
        rest = all(
            place == dim or (start == 0 and part.shape[place] == whole.shape[place])
            for place, start in enumerate(starts)
        )
        fits = part.shape[dim] == step and whole.shape[dim] == step * ranks
        return (axes, dim) if rest and fits else None


def _is_integer(item) -> bool:
    return isinstance(item, (int, np.integer)) and not isinstance(item, bool)


def _whole(item) -> bool:
    return isinstance(item, int) and not isinstance(item, bool) and item > 0
