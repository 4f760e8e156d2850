"""Parts of a tensor that each rank takes for itself: a slice that begins at `axis_index(axis) *
rows`.

Where the ranks of an axis take equal parts, each its own, and nothing is left over, the tensor is
cut along the axis: a `convert` to S(dim). A part that is put in its place among zeros is an addend
of the whole. `axis_index(axis) * rows + arange(rows)` is a part of the numbers of all rows.
"""

import math

from .document import Value


class OwnParts:
    """What integers of a program are the first element of a rank's own part."""

    def __init__(self, sizes: dict[str, int]):
        self.sizes = sizes
        self.first: dict[int, tuple[list[str], int]] = {}  # values: axes, elements of a part
        self.counted: dict[int, int] = {}  # values: how many numbers, from 0
        self.negative: set[int] = set()  # values: whether one of them is below 0, which none is
        self.zero: set[int] = set()  # values: tensors of zeros

    def index(self, value: Value, axes: list[str]) -> None:
        self.first[id(value)] = (axes, 1)

    def learn(self, name: str, ins: list, outs: list[Value]) -> None:
        """An operation on operands that may be such integers."""
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

    def numbers(self, name: str, ins: list) -> tuple[list[str], int] | None:
        """The axes along which a rank takes its part of the numbers from 0; how many all are."""
        if name != "add" or len(ins) != 2:
            return None
        for start, counted in (ins, reversed(ins)):
            if id(start) in self.first and id(counted) in self.counted:
                axes, step = self.first[id(start)]
                if self.counted[id(counted)] == step:
                    return axes, step * math.prod(self.sizes[axis] for axis in axes)
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


def _whole(item) -> bool:
    return isinstance(item, int) and not isinstance(item, bool) and item > 0
