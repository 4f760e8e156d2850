"""What all ranks make of a script's first steps, against what one rank makes of the same script.

A block is found in the whole parameter by its numbers, whatever cut it. Where gradients or updates
differ, it is asked whether they may: the ranks have other data, or draw random numbers, or rounding
makes as much of a difference.
"""

import dataclasses
import hashlib
import itertools

import torch

from ... import gradcheck
from ..values import raw_bytes

_PART = 5e-3  # of the greatest element, by which gradients may differ
_PART_HALF = 5e-2  # where there are numbers of 16 bits
_LATER = 5  # times as much after a step whose roundings an optimizer may have enlarged
_FLOOR = 1e-5  # of the greatest gradient: what is smaller is a rounding error
_MOVED = 0.05  # of an update: how much of it may point elsewhere
_NO_RATIO = -1.0  # of what is off by no factor that ranks could make


def outcome(kept: str, others: list[str]) -> dict:
    """What differs between one rank and `others`, as files: by what it is, by how much and by what
    factor (`unlike`), which parameters were `compared`, and why a difference need not be wrong
    (`doubt`)."""
    ranks, one = [torch.load(other) for other in others], torch.load(kept)
    try:
        found, names = compared(ranks, one)
    except NotComparable as error:
        return {"error": str(error)}
    answer = {"unlike": {name: vars(row) for name, row in found.items()}, "compared": names}
    try:
        if found:
            doubt(ranks, one)
    except NotComparable as error:
        answer["doubt"] = str(error)
    return answer


class NotComparable(Exception):
    """Why a script on one rank says nothing of it on all."""


@dataclasses.dataclass
class Difference:
    worst: float  # of the greatest element
    ratio: float  # of all ranks' to that of one


def locate(part: torch.Tensor, whole: torch.Tensor) -> list[torch.Tensor] | None:
    """The places that the block has in each dimension; None if it is no block of it, or of many
    places."""
    if part.dim() != whole.dim() or any(a > b for a, b in zip(part.shape, whole.shape)):
        return None
    if part.shape == whole.shape:
        all_of_it = [torch.arange(n) for n in whole.shape]
        return all_of_it if torch.equal(part, whole) else None
    if _is_one_number(part):
        return None
    numbers, order = whole.flatten().sort(stable=True)
    places = []
    for dim, length in enumerate(whole.shape):
        line = part[tuple(slice(None) if d == dim else 0 for d in range(part.dim()))].contiguous()
        at = torch.searchsorted(numbers, line).clamp(max=len(numbers) - 1)
        stride = int(torch.tensor(whole.shape[dim + 1 :]).prod())
        places.append(order[at] // stride % length)
    return places if torch.equal(_at(whole, places), part) else None


def _at(whole: torch.Tensor, places: list[torch.Tensor]) -> torch.Tensor:
    return whole[torch.meshgrid(*places, indexing="ij")] if places else whole


def compared(ranks: list[dict], one: dict) -> tuple[dict[str, Difference], list[str]]:
    """By what it is: how it differs; the parameters that were compared."""
    places = [_places(rank["before"], one["before"]) for rank in ranks]
    names = list(dict.fromkeys(name for of in places for name in of))
    if not names:
        raise NotComparable("parameters of ranks are no blocks of those of one rank")
    halves = one["halves"] or any(rank["halves"] for rank in ranks)
    part = _PART_HALF if halves else _PART
    found: dict[str, Difference] = {}
    for step in range(len(one["gradients"])):
        if any(step >= len(rank["gradients"]) for rank in ranks):
            break
        floor = _FLOOR * max((float(g.abs().max()) for of in one["gradients"][step].values()
                              for _, g in of), default=0.0)  # fmt: skip
        for name in names:
            ours, theirs = _gradients(ranks, one, places, step, name)
            if ours is not None and name not in found:
                limit = part * (_LATER if step else 1)
                if (differs := _difference(ours, theirs, limit, floor)) is not None:
                    found[name] = differs
        if found:  # what comes after it differs anyway
            break
    gradients = {f"gradient of {name}": row for name, row in found.items()}
    return gradients or _updates(ranks, one, places, names, part), names


def _places(parts: dict, wholes: dict) -> dict[str, tuple[str, list]]:
    """By the name of a block: that of its whole, and where it is. Blocks of one number, such as
    gains, are where others of their module are: a stage of a pipeline may count its own layers."""
    found = {}
    for name, part in sorted(parts.items(), key=lambda entry: _is_one_number(entry[1])):
        named = _renamed(name, found) if _is_one_number(part) else name
        for other in [named] * (named in wholes) + [one for one in wholes if one != named]:
            if (at := locate(part, wholes[other])) is not None:
                found[name] = other, at
                break
    return found


def _renamed(name: str, found: dict[str, tuple[str, list]]) -> str:
    """What it is called in the whole model if it is called as its nearest sibling is."""

    def shared(other: str) -> int:
        pairs = zip(name.split("."), other.split("."))
        return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))

    sibling = max(found, key=shared, default=name)
    parts, of_sibling = name.split("."), sibling.split(".")
    whole = found[sibling][0].split(".") if found else parts
    own = of_sibling[shared(sibling) :]
    if not own or whole[-len(own) :] != own:
        return name
    return ".".join(whole[: -len(own)] + parts[shared(sibling) :])


def _gradients(ranks, one, places, step: int, name: str):
    """What all ranks have of a gradient, and the same elements on one rank."""
    ours, theirs = [], []
    for rank, at in zip(ranks, places):
        parts = rank["gradients"][step].get(name)
        if parts is None or name not in at:
            continue
        other, where = at[name]
        whole = one["gradients"][step].get(other)
        if whole is None or len(whole) != 1:
            continue
        shape = one["before"][other].shape
        if whole[0][1].numel() != shape.numel():
            continue
        right = _at(whole[0][1].view(shape), where).flatten()
        for start, flat in parts:
            ours.append(flat)
            theirs.append(right[start : start + flat.numel()])
    return (torch.cat(ours), torch.cat(theirs)) if ours else (None, None)


def _updates(ranks, one, places, names, part: float) -> dict[str, Difference]:
    """Of parameters whose gradients agree, as far as there are any: the first update. A factor that
    all have is a rate of learning that goes with the number of ranks."""
    if any(len(of["states"]) < 2 for of in [*ranks, one]):
        return {}
    found = {}
    by_hand = not any(one["gradients"])
    for name in names:
        ours, theirs, clear = [], [], []
        for rank, at in zip(ranks, places):
            if name in at and name in rank["states"][0]:
                other, where = at[name]
                ours.append((rank["states"][1][name] - rank["states"][0][name]).double().flatten())
                whole = (one["states"][1][other] - one["states"][0][other]).double()
                theirs.append(_at(whole, where).flatten())
                clear.append(_at(_is_clear(one, other, 2 * part), where).flatten())
        if not ours:
            continue
        chosen = torch.cat(clear)
        ours, theirs = torch.cat(ours)[chosen], torch.cat(theirs)[chosen]
        if by_hand:
            rounding = 50 * torch.finfo(torch.float32).eps
            most = max(
                float(of["states"][0][name].abs().max()) for of in ranks if name in of["states"][0]
            )
            differs = _difference(ours, theirs, part, rounding * most)
        else:
            length = float(theirs.norm())
            along = float(ours @ theirs) / length if length else 0.0
            across = (
                float((ours - along / length * theirs).norm()) if length else float(ours.norm())
            )
            off = across > _MOVED * max(along, 1e-30) and across > 1e-12 or along < 0
            differs = Difference(across / max(length, 1e-30), _NO_RATIO) if off else None
        if differs is not None:
            found[f"update of {name}"] = differs
    return found


def _is_clear(one: dict, name: str, part: float) -> torch.Tensor:
    """By element, whether its first gradient is more than a rounding error, of which an optimizer
    may make as much as of any other."""
    gradient, shape = one["gradients"][0].get(name, ()), one["before"][name].shape
    if len(gradient) != 1 or not gradient[0][1].numel() == shape.numel() > 0:
        return torch.ones(shape, dtype=torch.bool)
    sizes = gradient[0][1].abs().view(shape)
    return sizes >= part * sizes.max()


def _difference(ours, theirs, part: float, floor: float) -> Difference | None:
    most = float(theirs.abs().max())
    limit = part * most + floor
    worst = float((ours - theirs).abs().nan_to_num(nan=float("inf")).max())
    if worst <= limit:
        return None
    below = float(theirs @ theirs)
    ratio = float(ours @ theirs) / below if below else 0.0
    fits = below and float((ours - ratio * theirs).abs().max()) <= max(abs(ratio), 1) * limit
    ratio = gradcheck.plain(ratio)
    times = 1 / ratio if 0 < abs(ratio) < 1 else ratio
    plain = fits and ratio != 1 and times == round(times)
    return Difference(worst / (most + 1e-30), ratio if plain else _NO_RATIO)


def doubt(ranks: list[dict], one: dict) -> None:
    """Raises where a difference need not be wrong."""
    if not _is_one_model(ranks, one):
        raise NotComparable("one rank has another model")
    if any(rank["batch_norm"] for rank in ranks):
        raise NotComparable("batch norm is over the rows of each rank")
    for step in range(min(len(of["data"]) for of in [*ranks, one])):
        wholes = one["data"][step]
        parts = [[x for x in rank["data"][step] if not _says_nothing(x)] for rank in ranks]
        if not _is_same(wholes, parts):
            raise NotComparable("all ranks together have other data, or draw other random numbers")


def _is_one_model(ranks: list[dict], one: dict) -> bool:
    """Whether all blocks of parameters are of a whole, and of each there is one. Blocks of one
    number may be of any."""
    wholes = one["before"]
    found = set()
    for rank in ranks:
        at = _places(rank["before"], wholes)
        found |= {other for other, _ in at.values()}
        left = [part for name, part in rank["before"].items() if name not in at]
        if any(part.numel() and not _is_one_number(part) for part in left):
            return False
    return all(name in found or _is_one_number(whole) for name, whole in wholes.items())


def _is_one_number(tensor: torch.Tensor) -> bool:
    return tensor.numel() == 0 or bool((tensor == tensor.flatten()[0]).all())


def _says_nothing(data: torch.Tensor) -> bool:
    """One number, or numbers that count up."""
    plain = data.flatten()
    steps = plain[1:] - plain[:-1] if plain.dtype is not torch.bool else plain
    return _is_one_number(plain) or bool((steps == steps[0]).all())


def _is_same(wholes: list, parts: list[list]) -> bool:
    """Whether what ranks have is what one has, all of it. Some of the numbers that count up say
    something, such as those of a rank that has two blocks of them."""
    rows = [_Rows(whole) for whole in wholes]
    for part in {_hash(x): x for of in parts for x in of}.values():
        if not any([row.take(part) for row in rows]):
            return False
    return all(row.complete or _says_nothing(whole) for row, whole in zip(rows, wholes))


def _hash(tensor: torch.Tensor) -> bytes:
    plain = tensor.contiguous()
    return hashlib.sha256(raw_bytes(plain) + str((plain.dtype, *plain.shape)).encode()).digest()


class _Rows:
    """A tensor, and which of its rows are found elsewhere, along each dimension."""

    def __init__(self, whole: torch.Tensor):
        self._whole, self._all = whole, _hash(whole)
        self._rows: dict[int, dict[bytes, bool]] = {}
        self._is_there = False

    def take(self, part: torch.Tensor) -> bool:
        """Whether it is some of these rows."""
        whole = self._whole
        if part.dtype != whole.dtype or part.dim() != whole.dim():
            return False
        if part.shape == whole.shape:
            same = _hash(part) == self._all
            self._is_there |= same
            return same
        other = [d for d in range(part.dim()) if part.shape[d] != whole.shape[d]]
        if len(other) != 1 or part.shape[other[0]] > whole.shape[other[0]]:
            return False
        dim = other[0]
        if dim not in self._rows:
            self._rows[dim] = {_hash(row): False for row in whole.unbind(dim)}
        rows = self._rows[dim]
        hashes = [_hash(row) for row in part.unbind(dim)]
        if not all(one in rows for one in hashes):
            return False
        rows |= dict.fromkeys(hashes, True)
        return True

    @property
    def complete(self) -> bool:
        return self._is_there or any(all(rows.values()) for rows in self._rows.values())
