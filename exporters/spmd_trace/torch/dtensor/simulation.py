"""Runs an operation on the data of every rank and joins the results as their placements say.

If that is what the operation gives on one device, placements of operands and results go together:
this decides who is right where DTensor and the checker differ.
"""

import itertools
import math

import torch
from torch.utils import _pytree as pytree

from .samples import Case, Sample

_SEED = 17
_LOOSE = {torch.bfloat16: 3e-2}  # what rounding to so few digits may change


class _Unequal(Exception):
    """Ranks that should hold the same hold different values."""


class _Unknown(Exception):
    """A placement that this module cannot join."""


def _random(sample: Sample, generator: torch.Generator) -> torch.Tensor:
    """Data for one device: positive doubles, far from the ends of the domains of functions."""
    if sample.dtype == torch.bool:
        return torch.randint(2, sample.shape, generator=generator).bool()
    if not (sample.dtype.is_floating_point or sample.dtype.is_complex):
        return torch.randint(sample.below, sample.shape, generator=generator)
    dtype = torch.complex128 if sample.dtype.is_complex else torch.float64
    drawn = torch.rand(sample.shape, generator=generator, dtype=dtype) * 0.8 + 0.1
    return drawn.sort().values if sample.ascending else drawn


def _blocks(tensor: torch.Tensor, dim: int, count: int) -> list[torch.Tensor]:
    """Consecutive blocks, the first ones full, the last short or empty."""
    extent = tensor.shape[dim]
    block = math.ceil(extent / count)
    starts = [min(i * block, extent) for i in range(count)]
    return [tensor.narrow(dim, start, min(block, extent - start)) for start in starts]


def _addends(tensor: torch.Tensor, count: int, generator: torch.Generator) -> list[torch.Tensor]:
    parts = [
        torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype) for _ in range(count - 1)
    ]
    return [*parts, tensor - sum(parts)]


def _spread(tensor, at: list[str], sizes: list[int], generator) -> list[torch.Tensor]:
    """What each rank holds, the last axis fastest."""
    if not at:
        return [tensor]
    if at[0] == "R":
        parts = [tensor] * sizes[0]
    elif at[0] == "P":
        parts = _addends(tensor, sizes[0], generator)
    else:
        parts = _blocks(tensor, int(at[0][2:-1]), sizes[0])
    return [one for part in parts for one in _spread(part, at[1:], sizes[1:], generator)]


def _join(held: list[torch.Tensor], at: tuple[str, ...], sizes: list[int]) -> torch.Tensor:
    """The inverse of `_spread`; averages and maxima too."""
    if not at:
        return held[0]
    inner = len(held) // sizes[0]
    parts = [_join(held[i * inner : (i + 1) * inner], at[1:], sizes[1:]) for i in range(sizes[0])]
    word = at[0]
    if word == "R":
        if not all(_close(part, parts[0]) for part in parts):
            raise _Unequal
        return parts[0]
    if word in ("P", "P(avg)"):
        total = torch.stack(parts).sum(0)
        return total / sizes[0] if word == "P(avg)" else total
    if word in ("P(max)", "P(min)"):
        stacked = torch.stack(parts)
        return stacked.amax(0) if word == "P(max)" else stacked.amin(0)
    if word == "P(product)":
        return torch.stack(parts).prod(0)
    if word.startswith("S(") and word.endswith(")"):
        return torch.cat(parts, int(word[2:-1]))
    raise _Unknown(word)


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    tolerance = _LOOSE.get(one.dtype, 1e-7)
    return torch.allclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)


class Simulation:
    """One decision's operation on data."""

    def __init__(self, case: Case, row: dict, sizes: list[int]):
        self._case, self._row, self._sizes = case, row, sizes

    def holds(
        self, way: int, results: list[tuple[str, ...] | None], scales: list[int] | None = None
    ) -> bool | None:
        """Whether the results, joined as stated and divided by scales, are those of one device.

        None in `results` is a result of which nothing is claimed. None if this cannot be known:
        there is no kernel, the data are random, or a placement is of a kind of its own.
        """
        if torch.Tag.nondeterministic_seeded in self._case.op.tags:
            return None
        self._scales = scales or [1] * len(results)
        generator = torch.Generator().manual_seed(_SEED)
        whole = [_random(sample, generator) for sample in self._case.samples]
        try:
            expected = self._run(whole, {})
        except (NotImplementedError, RuntimeError):
            return None
        held = [
            _spread(tensor, operand["at"], self._sizes, generator)
            for tensor, operand in zip(whole, self._row["operands"])
        ]
        attributes = self._row["calls"][way].get("attrs", {})
        if self._case.uneven and any(isinstance(value, list) for value in attributes.values()):
            return None  # sizes that other ranks do not have
        try:
            ranks = [self._run(list(mine), attributes) for mine in zip(*held)]
        except (RuntimeError, IndexError):
            return False
        return self._joined(expected, ranks, results)

    def _joined(self, expected, ranks, results) -> bool | None:
        known = False
        for i, (wanted, claim) in enumerate(itertools.zip_longest(expected, results)):
            if claim is None or wanted is None:
                continue
            try:
                found = _join([rank[i] for rank in ranks], claim, self._sizes)
            except _Unequal:
                return False
            except _Unknown:
                continue
            except RuntimeError:  # blocks that do not fit together
                return False
            known = True
            scale = self._scales[i]
            if not _close(found if scale == 1 else found / scale, wanted):
                return False
        return known or None

    def _run(self, tensors: list[torch.Tensor], attributes: dict) -> list[torch.Tensor]:
        """Results in the order of the decision: written operands, then those that are returned."""
        tensors = [tensor.clone() for tensor in tensors]
        left = iter(tensors)
        args, kwargs = pytree.tree_map(
            lambda leaf: next(left) if isinstance(leaf, Sample) else leaf,
            (self._case.args, self._case.kwargs),
        )
        args = list(args)
        for position, argument in enumerate(self._case.op._schema.arguments):
            value = attributes.get(argument.name)
            if position < len(args) and type(value) is type(args[position]) and _sizes(value):
                args[position] = value
        returned = pytree.tree_leaves([self._case.op(*args, **kwargs)])
        written = [tensors[result["of"]] for result in self._row["results"] if "of" in result]
        new = [
            leaf
            for leaf in returned
            if isinstance(leaf, torch.Tensor) and not any(leaf is one for one in tensors)
        ]
        return written + new


def _sizes(value) -> bool:
    """Whether an attribute may differ between ranks and one device."""
    if isinstance(value, list):
        return bool(value) and all(type(one) is int for one in value)
    return type(value) is int
