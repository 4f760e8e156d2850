"""One operation with sample operands: what is asked of DTensor, placements aside."""

import dataclasses
import math

import torch

_PLAIN = (torch.bool, torch.int64)  # never a sum of parts in practice


@dataclasses.dataclass(frozen=True)
class Sample:
    """A global tensor by shape; integers are drawn below `below`, so that they are good indices."""

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    below: int = 2
    ascending: bool = False

    def options(self, size: int, uneven: bool) -> list[str]:
        """The placements on an axis of `size` ranks: the block of the first rank is never empty."""
        words = ["R"] if self.dtype in _PLAIN else ["R", "P"]
        for dim, extent in enumerate(self.shape):
            if extent and (extent % size == 0 or (uneven and extent > size)):
                words.append(f"S({dim})")
        return words

    def tensor(self, shape) -> torch.Tensor:
        """Data of a rank, the same in every run; positive, so that roots and logarithms exist."""
        numbers = torch.arange(math.prod(shape)).remainder(7)
        if self.dtype.is_floating_point or self.dtype.is_complex:
            numbers = (numbers + 1) / 8
        elif self.dtype != torch.bool:
            numbers = numbers.remainder(self.below)
        return numbers.to(self.dtype).reshape(shape)


def floats(*shape: int) -> Sample:
    return Sample(shape)


def ascending(extent: int) -> Sample:
    return Sample((extent,), ascending=True)


def integers(*shape: int, below: int = 2) -> Sample:
    return Sample(shape, torch.int64, below)


def booleans(*shape: int) -> Sample:
    return Sample(shape, torch.bool)


def complexes(*shape: int) -> Sample:
    return Sample(shape, torch.complex64)


@dataclasses.dataclass(frozen=True)
class Case:
    """A call of `op`; samples stand in place of tensors, possibly inside lists.

    runs: whether the CPU has a kernel for it.
    uneven: dimensions are sharded too where the axis does not divide them.
    """

    name: str
    op: torch._ops.OpOverload
    args: tuple
    kwargs: dict
    runs: bool = True
    uneven: bool = False

    @property
    def samples(self) -> list[Sample]:
        from torch.utils import _pytree as pytree

        leaves = pytree.tree_leaves((self.args, self.kwargs))
        return [leaf for leaf in leaves if isinstance(leaf, Sample)]


def overload(name: str) -> torch._ops.OpOverload:
    """`mm` is `aten.mm.default`, `sum.dim_IntList` that overload."""
    packet, _, word = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), word or "default")


def case(op: str, *args, note: str = "", runs: bool = True, uneven: bool = False, **kwargs) -> Case:
    """A case named after its operation and, where that has several, a note."""
    name = f"{op} {note}".strip()
    return Case(name, overload(op), args, kwargs, runs, uneven)
