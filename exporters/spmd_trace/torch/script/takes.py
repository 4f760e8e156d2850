"""Which blocks of a whole tensor a rank has taken for a parameter, such as its heads of a fused
query, key and value.

What a parameter is made of is followed by numbers: of each element, which one of the whole it was.
The functions by which a script takes a part are applied to these numbers as well. Nothing has to be
known of what happens in between: a parameter that holds something else than what was taken, by the
digest of both, was taken from nowhere.
"""

import dataclasses
import hashlib
import itertools
import math

import torch

from . import shapes
from .evidence import digest

# The result has the elements of the operand, in their places.
_COPIES = set("clone contiguous detach to type float double half bfloat16 cpu cuda".split())
_COPIES |= {"__deepcopy__", "new_tensor", "requires_grad_"}
# In other places.
_MOVES = set("__getitem__ reshape flatten unflatten view cat concat concatenate stack".split())
_MOVES |= set("hstack vstack index_select select narrow t transpose permute movedim".split())
# Each of them, multiplied by a number.
_SCALES = set("mul div __mul__ __rmul__ __truediv__ multiply divide neg".split())
_LARGE = 1 << 24  # elements of a tensor that is not followed
_OF_ONE = 1 << 40  # numbers of one whole; those of the next one begin there


@dataclasses.dataclass
class _Content:
    """Of a storage: the digests and sizes of the wholes, and by element the number in them."""

    wholes: list[tuple[str, int]]
    places: torch.Tensor  # -1: of none
    digest: str | None = None


@dataclasses.dataclass
class Taken:
    """`blocks` blocks of dimension `dim` of a whole, each the one in the same `place` among
    `pieces`."""

    whole: str
    dim: int
    blocks: int
    pieces: int
    place: int


class Takes:
    """Notes the functions that a script calls before its first step."""

    def __init__(self) -> None:
        self._contents: dict[int, _Content] = {}  # by storage

    def note(self, func, args: tuple, kwargs: dict, result) -> None:
        with torch._C.DisableTorchFunction():
            self._note(func, args, kwargs, result)

    def _note(self, func, args: tuple, kwargs: dict, result) -> None:
        name = getattr(func, "__name__", "")
        given = [one for one in (*args, *kwargs.values()) if _is_plain(one)]
        listed = args and isinstance(args[0], (list, tuple)) and name in _MOVES
        given += [one for one in args[0] if _is_plain(one)] if listed else []
        if name in ("copy_", "__setitem__") and len(args) > 1:
            if _is_plain(args[0]):
                sets = name == "__setitem__"
                self._write(args[0], args[1:2] if sets else (), args[2] if sets else args[1])
        elif name.endswith("_") and not name.endswith("__"):
            scales = name[:-1] in _SCALES and len(given) == 1
            for target in given[:1] if name not in _COPIES else ():
                self._changed(target, scales)
        elif _is_plain(result) and given:
            if (made := self._made(name, func, args, kwargs, given)) is not None:
                if _storage(result) not in {_storage(one) for one in given} or "out" in kwargs:
                    self._set(result, *made)

    def _made(self, name: str, func, args: tuple, kwargs: dict, given: list):
        """The wholes and places of a result; None: it is no part of any."""
        if name in _COPIES or (name in _SCALES and len(given) == 1):
            return self._of(given[0])
        if name not in _MOVES:
            return None
        sources = args[0] if isinstance(args[0], (list, tuple)) else args[:1]
        if not all(map(_is_plain, sources)):
            return None
        seen: dict[int, _Content | None] = {}
        found = [self._of(one, seen) for one in sources]
        if any(one is None for one in found):
            return None
        wholes = list(dict.fromkeys(one for of, _ in found for one in of))
        moved = [_renumbered(of, places, wholes) for of, places in found]
        first = moved if isinstance(args[0], (list, tuple)) else moved[0]
        words = {key: one for key, one in kwargs.items() if key != "out"}
        with torch._C._DisableTorchDispatch():
            return wholes, func(first, *args[1:], **words)

    def _of(self, tensor: torch.Tensor, seen: dict | None = None):
        """Of its elements, the wholes and places: those of a part of a storage if nothing else is
        known. `seen`: the storages of one call."""
        seen, storage = {} if seen is None else seen, _storage(tensor)
        if storage not in seen:
            seen[storage] = self._known(tensor) or _as_whole(tensor)
        content = seen[storage]
        return content and (content.wholes, _seen_as(content.places, tensor))

    def _known(self, tensor: torch.Tensor) -> _Content | None:
        """What is known of a storage, if it still holds that."""
        content = self._contents.get(_storage(tensor))
        if content is None or content.places.numel() != _size(tensor):
            return None
        content.digest = content.digest or digest(_flat(tensor))
        if content.digest != digest(_flat(tensor)):
            del self._contents[_storage(tensor)]
            return None
        return content

    def _set(self, tensor: torch.Tensor, wholes: list, places: torch.Tensor) -> None:
        """Notes what a new tensor holds, unless it holds a whole as it is."""
        if sum(size for _, size in wholes) <= tensor.numel() or places.shape != tensor.shape:
            self._contents.pop(_storage(tensor), None)
            return
        with torch._C._DisableTorchDispatch():
            all_places = torch.full((_size(tensor),), -1)
            _seen_as(all_places, tensor).copy_(places)
        self._contents[_storage(tensor)] = _Content(wholes, all_places, digest(_flat(tensor)))

    def _write(self, target: torch.Tensor, key: tuple, source) -> None:
        """`target[key] = source`, or all of it."""
        made = self._of(source) if _is_plain(source) else None
        content = self._contents.get(_storage(target))
        with torch._C._DisableTorchDispatch():
            size = _size(target)
            known = content is not None and content.places.numel() == size
            old = content if known else _Content([], torch.full((size,), -1))
            if made is None or size > _LARGE:
                self._contents.pop(_storage(target), None)
                return
            wholes = list(dict.fromkeys([*old.wholes, *made[0]]))
            places = _renumbered(old.wholes, old.places, wholes)
            region = _seen_as(places, target)
            region = region[key[0]] if key else region
            if region.shape != made[1].shape or region.untyped_storage()._cdata != (
                places.untyped_storage()._cdata
            ):
                self._contents.pop(_storage(target), None)
                return
            region.copy_(_renumbered(made[0], made[1], wholes))
        self._contents[_storage(target)] = _Content(wholes, places)

    def _changed(self, target: torch.Tensor, scales: bool) -> None:
        content = self._contents.get(_storage(target))
        if content is not None and scales:
            content.digest = digest(_flat(target))
        else:
            self._contents.pop(_storage(target), None)

    def taken(self, tensor: torch.Tensor) -> Taken | None:
        """What a parameter is of a whole, if it is blocks of one of its dimensions."""
        with torch._C.DisableTorchFunction():
            if not _is_plain(tensor) or not tensor.is_contiguous() or tensor.numel() < 2:
                return None
            content = self._known(tensor) if tensor.numel() == _size(tensor) else None
            if content is None or not content.wholes or bool((content.places < 0).any()):
                return None
            with torch._C._DisableTorchDispatch():
                return _blocks(content.wholes, _seen_as(content.places, tensor))


def _as_whole(tensor: torch.Tensor) -> _Content | None:
    size = _size(tensor)
    if size > _LARGE or size < 2 or not isinstance(whole := digest(_flat(tensor)), str):
        return None
    with torch._C._DisableTorchDispatch():
        return _Content([(whole, size)], torch.arange(size), whole)


def _blocks(wholes: list[tuple[str, int]], places: torch.Tensor) -> Taken | None:
    """Several wholes of one size lie behind one another, as they are first seen. Of the same rows
    the fewest blocks: columns of one matrix are rows of another one."""
    found: list[Taken] = []
    order = list(dict.fromkeys((places.flatten() // _OF_ONE).tolist()))
    sizes = {wholes[one][1] for one in order}
    pieces, rest = divmod(sum(wholes[one][1] for one in order), places.numel())
    if len(sizes) != 1 or rest or pieces < 2:
        return None
    rank = torch.tensor([order.index(one) if one in order else 0 for one in range(len(wholes))])
    flat = rank[places // _OF_ONE] * sizes.pop() + places % _OF_ONE
    name = hashlib.sha256(" ".join(wholes[one][0] for one in order).encode()).hexdigest()
    for dim, layout in itertools.product(range(places.dim()), _layouts(places.dim())):
        if len(order) > 1 and layout[0] != dim:
            continue
        extents = [n * pieces if at == dim else n for at, n in enumerate(places.shape)]
        strides = [0] * places.dim()
        for behind, at in enumerate(layout):
            strides[at] = math.prod(extents[one] for one in layout[behind + 1 :])
        rows = flat.movedim(dim, 0).reshape(places.shape[dim], -1)[:, 0] // strides[dim]
        expected = torch.zeros_like(flat)
        for at, extent in enumerate(places.shape):
            along = rows if at == dim else torch.arange(extent)
            shape = [-1 if one == at else 1 for one in range(flat.dim())]
            expected += (along * strides[at]).view(shape)
        if torch.equal(expected, flat) and (runs := _interleaved(rows, pieces)) is not None:
            found.append(Taken(name, dim, runs[0], pieces, runs[1]))
    return min(found, key=lambda one: one.blocks, default=None)


def _layouts(dims: int) -> list[tuple[int, ...]]:
    """Orders in which the dimensions of a whole may lie in memory, the outermost first."""
    return list(itertools.permutations(range(dims))) if dims <= 3 else [tuple(range(dims))]


def _interleaved(rows: torch.Tensor, pieces: int) -> tuple[int, int] | None:
    """How many runs the rows are, and where among so many pieces each of them lies."""
    steps = (rows[1:] - rows[:-1] != 1).nonzero()
    length = int(steps[0]) + 1 if len(steps) else len(rows)
    place, rest = divmod(int(rows[0]), length)
    numbers = torch.arange(len(rows))
    expected = numbers // length * (length * pieces) + place * length + numbers % length
    fits = not rest and place < pieces and len(rows) % length == 0
    return (len(rows) // length, place) if fits and torch.equal(rows, expected) else None


def _renumbered(of: list, places: torch.Tensor, wholes: list) -> torch.Tensor:
    """Places in some wholes as those in a list that has them, too."""
    if of == wholes or not of:
        return places.clone()
    at = torch.tensor([wholes.index(one) for one in of])
    moved = at[places.clamp(min=0) // _OF_ONE] * _OF_ONE + places % _OF_ONE
    return torch.where(places < 0, places, moved)


def _is_plain(one) -> bool:
    """Whether it is a tensor of numbers that are there, in memory of its own."""
    if not isinstance(one, torch.Tensor) or type(one) not in (torch.Tensor, torch.nn.Parameter):
        return False
    there = one.layout is torch.strided and one.device.type == "cpu" and not one.is_meta
    return there and one.is_floating_point() and shapes.handle(one) is None


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _size(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().nbytes() // tensor.element_size()


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """All of its storage."""
    return tensor.detach().as_strided((_size(tensor),), (1,), 0)


def _seen_as(places: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    return places.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
