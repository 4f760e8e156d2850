"""A mesh from the groups of ranks that a script uses.

The ranks of a group lie at even distances, nested in each other: that is its layout. The borders of
all layouts cut the line of ranks into axes, so that each group runs along some of them.
"""

import itertools
import re
import sys

import torch.distributed as dist

from ..communication.mesh import Axis, Mesh
from ..locations import is_user_code
from . import world

_SUFFIXES = re.compile(r"^_+|_*(process_group|group|pg|mesh)_*$|^(group|pg|mesh)_", re.IGNORECASE)
_ROLES = {"dp": "data", "ddp": "data", "fsdp": "data", "data_parallel": "data"}


def layout(ranks: list[int]) -> list[tuple[int, int]] | None:
    """Sizes and strides of the ranks, innermost first; None where they do not lie so."""
    steps = [rank - ranks[0] for rank in ranks]
    pieces: list[tuple[int, int]] = []
    reached = 1  # how many of the ranks the pieces reach
    while reached < len(steps):
        stride = steps[reached]
        size = 1
        while size * reached < len(steps) and steps[size * reached] == size * stride:
            size += 1
        if stride <= 0 or len(steps) % (size * reached):
            return None
        pieces.append((size, stride))
        reached *= size
    offsets = [sum(step) for step in _steps(pieces)]
    return pieces if offsets == steps else None


def _steps(pieces: list[tuple[int, int]]):
    outermost_first = [range(0, size * stride, stride) for size, stride in reversed(pieces)]
    return itertools.product(*outermost_first)


def _borders(layouts: list[list[tuple[int, int]]], ranks: int) -> list[int]:
    """Where axes begin and end: each border divides the next one. Layouts that do not fit are left
    out."""
    borders = {1, ranks}
    for pieces in layouts:
        more = {edge for size, stride in pieces for edge in (stride, stride * size)}
        line = sorted(borders | more)
        if all(after % before == 0 for before, after in itertools.pairwise(line)):
            borders |= more
    return sorted(borders)


def _short(name: str) -> str | None:
    """`tp` of `tp_group`, `self._TP_GROUP` or `mesh_tp`; None for what says nothing."""
    word = re.sub(r"\W+", "_", _SUFFIXES.sub("", _SUFFIXES.sub("", name))).strip("_").lower()
    if (
        not word
        or word in ("default", "undefined", "world", "ranks", "device")
        or word[0].isdigit()
    ):
        return None
    return word


def _variables() -> list[tuple[str, list[int]]]:
    """Process groups by the names of the variables of the script that hold them."""
    found = []
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if path is None or not is_user_code(path):
            continue
        for name, value in list(vars(module).items()):
            if isinstance(value, dist.ProcessGroup):
                found.append((name, dist.get_process_group_ranks(value)))
    return found


def _of_meshes(seen: world.Seen) -> list[tuple[str, list[int]]]:
    """The dimensions of the script's device meshes."""
    found = []
    for mesh in seen.meshes:
        for name in mesh.mesh_dim_names or ():
            try:
                found.append((name, dist.get_process_group_ranks(mesh.get_group(name))))
            except (KeyError, RuntimeError, IndexError):
                continue  # a mesh that this rank is not in
    return found


def mesh(seen: world.Seen, job: world.Job, known: list | None = None) -> Mesh:
    """The axes along which the groups of this rank run, named as the script names them; those of
    another rank, if names, sizes and strides are `known`.
    """
    if known:
        return Mesh("main", [Axis(*axis, _ROLES.get(axis[0])) for axis in known])
    named = [*_of_meshes(seen), *_variables(), *world.groups_of_this_rank()]
    layouts = [pieces for _, ranks in named if (pieces := layout(ranks)) is not None]
    known: dict[tuple[int, int], str] = {}
    for name, ranks in named:
        pieces, word = layout(ranks), _short(name)
        if pieces is not None and len(pieces) == 1 and word and word not in known.values():
            known.setdefault(pieces[0], word)
    for wrapped in seen.replicas:
        pieces = layout(dist.get_process_group_ranks(wrapped.process_group))
        if pieces is not None and len(pieces) == 1 and "dp" not in known.values():
            known.setdefault(pieces[0], "dp")
    borders, axes = _borders(layouts, job.world), []
    for stride, end in itertools.pairwise(borders):
        piece = (end // stride, stride)
        name = known.get(piece) or ("ranks" if len(borders) == 2 else f"every{stride}")
        axes.append(Axis(name, *piece, _ROLES.get(name)))
    return Mesh("main", axes[::-1] or [Axis("ranks", job.world, 1)])
