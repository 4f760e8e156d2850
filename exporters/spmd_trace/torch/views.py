"""How one view of memory is made from another: as operations that a checker knows.

Autograd saves views that no recorded operation made, such as the transposed weight inside of a
linear layer. Where they lie in memory says which permutation, merge or split of dimensions they
are; what is none of these is stated by its strides.
"""

import dataclasses
import math

import torch


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where the elements of a tensor lie in its storage, counted in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def order(self) -> list[int]:
        """The dimensions as they are nested in memory, outermost first."""
        dims = list(range(len(self.shape)))
        if self.nested(dims).strides == _row_major(self.shape):
            return dims
        return sorted(dims, key=lambda d: (-self.strides[d], self.shape[d] == 1))

    @property
    def is_dense(self) -> bool:
        """Whether the elements fill their memory, each in one place."""
        inner = self.nested(self.order)
        return inner.strides == _row_major(inner.shape)

    @property
    def is_row_major(self) -> bool:
        return self.nested(list(range(len(self.shape)))).strides == _row_major(self.shape)

    def nested(self, order: list[int]) -> "Layout":
        """The same elements with dimensions in another order; those of size 1 lie anywhere."""
        shape = tuple(self.shape[d] for d in order)
        strides = tuple(self.strides[d] for d in order)
        dense = _row_major(shape)
        strides = tuple(w if n == 1 else s for n, s, w in zip(shape, strides, dense))
        return Layout(shape, strides, self.offset)


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def of(tensor: torch.Tensor) -> Layout:
    """The layout of a tensor."""
    return Layout(tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset())


def derive(base: Layout, view: Layout) -> list[tuple[str, dict]] | None:
    """The operations, with their attributes, that make `view` out of `base`.

    None where the base has gaps: strides cannot be counted in it then.
    """
    if not base.is_dense:
        return None
    places = zip(view.shape, view.strides)
    if view.shape != (once := tuple(1 if not step else extent for extent, step in places)):
        steps = derive(base, Layout(once, view.strides, view.offset))
        return [*steps, ("aten.expand.default", {"size": list(view.shape)})]
    order, inner = base.order, base.nested(base.order)
    unroll = [] if order == sorted(order) else [_permute(order)]
    first, count = view.offset - base.offset, math.prod(view.shape)
    if not view.is_dense:
        words = {"size": list(view.shape), "stride": list(view.strides), "storage_offset": first}
        return [*unroll, ("aten.as_strided.default", words)]
    wanted = view.nested(view.order).shape
    roll = _inverse(view.order)
    if count != math.prod(base.shape):  # a run of the base
        flat = [] if len(inner.shape) == 1 else [_view([math.prod(base.shape)])]
        run = ("aten.slice.Tensor", {"start": first, "end": first + count})
        shaped = [] if len(wanted) == 1 else [_view(wanted)]
        return [*unroll, *flat, run, *shaped] + ([] if roll == sorted(roll) else [_permute(roll)])
    if wanted == inner.shape:  # the same nest of dimensions: one permutation is enough
        dims = [order[at] for at in roll]
        return [] if dims == sorted(dims) else [_permute(dims)]
    return [*unroll, _view(wanted)] + ([] if roll == sorted(roll) else [_permute(roll)])


def runs(
    tensor: torch.Tensor, span: tuple[int, int], parts: list[tuple[tuple[int, int], tuple]]
) -> tuple[torch.Tensor, list[tuple[torch.Tensor, bool]]] | None:
    """The bytes that a tensor reaches as one run, and the runs that it consists of, in order, each
    with whether it is one of `parts`: their bytes and keys, of which a later one may lie inside of
    an earlier one.

    None where they overlap otherwise, have gaps, or hold elements of another type.
    """
    size = tensor.element_size()
    taken: list[tuple[int, int]] = []
    for (low, high), (_, offset, shape, strides, dtype) in parts:
        if any(start <= low and high <= end for start, end in taken):
            continue
        within = span[0] <= low and high <= span[1] and dtype == tensor.dtype
        apart = all(high <= start or end <= low for start, end in taken)
        if not (within and apart and Layout(shape, strides, offset).is_dense):
            return None
        taken.append((low, high))

    def run(low: int, high: int) -> torch.Tensor:
        return tensor.as_strided([(high - low) // size], [1], low // size)

    found, place = [], span[0]
    for low, high in sorted(taken):
        found += [(run(place, low), False)] if place < low else []
        found.append((run(low, high), True))
        place = high
    found += [(run(place, span[1]), False)] if place < span[1] else []
    return run(*span), found


def needs_strides(base: torch.Tensor, view: torch.Tensor) -> bool:
    """Whether nothing but its strides says how a view is made."""
    steps = derive(of(base), of(view))
    return steps is None or any("stride" in words for _, words in steps)


def _inverse(order: list[int]) -> list[int]:
    return sorted(range(len(order)), key=lambda at: order[at])


def _view(shape) -> tuple[str, dict]:
    return ("aten.view.default", {"size": list(shape)})


def _permute(dims: list[int]) -> tuple[str, dict]:
    return ("aten.permute.default", {"dims": dims})


def carry_out(base: torch.Tensor, steps: list[tuple[str, dict]]) -> list[torch.Tensor]:
    """What each of the operations makes of `base`, in turn."""
    made = []
    for name, words in steps:
        if name == "aten.expand.default":
            base = base.expand(words["size"])
        elif "dims" in words:
            base = base.permute(words["dims"])
        elif "stride" in words:
            offset = base.storage_offset() + words["storage_offset"]
            base = base.as_strided(words["size"], words["stride"], offset)
        elif "start" in words:
            base = base[words["start"] : words["end"]]
        else:
            base = base.view(words["size"])
        made.append(base)
    return made


def keeps_places(tensor: torch.Tensor, size, stride, offset=None) -> bool:
    """Whether all elements stay where they are: dimensions of one element get other strides."""
    if tuple(size) != tuple(tensor.shape) or offset not in (None, tensor.storage_offset()):
        return False
    strides = zip(size, stride, tensor.stride())
    return all(extent == 1 or new == old for extent, new, old in strides)
