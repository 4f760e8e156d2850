"""What a StableHLO module says about devices, in JAX's words: meshes, shardings, and the axes
that groups of ranks are."""

import itertools

import numpy as np
from jax.sharding import AbstractMesh, AxisType, PartitionSpec
from jaxlib.mlir.dialects import sdy

from ..refused import Unrecordable


def mesh_of(operation) -> AbstractMesh:
    """Of an `sdy.mesh`; its ranks are numbered by their coordinates."""
    attr = sdy.MeshAttr(operation.attributes["mesh"])
    axes = {one.name: one.size for one in map(sdy.MeshAxisAttr, attr.axes)}
    ranks = list(attr.device_ids)
    if ranks and ranks != list(range(len(ranks))):
        raise Unrecordable("a mesh whose devices are not in the order of their numbers")
    return AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


def spec_of(attr) -> PartitionSpec | None:
    """Of an `sdy.sharding`; none if it leaves all dimensions to the compiler."""
    entries, said = [], False
    for dim in map(sdy.DimensionShardingAttr, sdy.TensorShardingAttr(attr).dimension_shardings):
        axes = []
        for one in map(sdy.AxisRefAttr, dim.axes):
            if one.sub_axis_info is not None:
                raise Unrecordable(f"a dimension that is cut by a part of the axis {one.name}")
            axes.append(one.name)
        said |= bool(axes) or dim.is_closed
        entries.append(tuple(axes) if len(axes) > 1 else axes[0] if axes else None)
    return PartitionSpec(*entries) if said or not entries else None


def specs_of(attr) -> list[PartitionSpec]:
    """Of the operands or results of a manual computation."""
    each = sdy.TensorShardingPerValueAttr(attr).shardings
    return [spec_of(one) or PartitionSpec() for one in each]


class Ranks:
    """The ranks of a mesh in the groups that its axes make of them."""

    def __init__(self, mesh: AbstractMesh):
        self.sizes = dict(mesh.shape)
        self._ids = np.arange(mesh.size).reshape(mesh.axis_sizes)
        self._known: dict[tuple, tuple | None] = {}

    def axes(self, groups, where: str) -> tuple[tuple[str, ...], tuple | None]:
        """The axes along which the groups lie, outermost first; or the axis of whose indices they
        are groups, and these."""
        key = tuple(map(tuple, groups))
        if key not in self._known:
            whole = self._find(key)
            self._known[key] = self._within(key) if whole is None else (whole, None)
        if (found := self._known[key]) is None:
            raise Unrecordable(
                f"`{where}` in groups of ranks that no axes of the mesh make: {_short(key)}"
            )
        return found

    def _within(self, groups) -> tuple | None:
        for axis in self.sizes:
            along = {rank: (row, place) for row, group in enumerate(self.groups((axis,)))
                     for place, rank in enumerate(group)}  # fmt: skip
            each: dict[int, list] = {}
            for group in groups:
                rows, positions = zip(*(along[rank] for rank in group))
                each.setdefault(rows[0] if len(set(rows)) == 1 else -1, []).append(positions)
            first = sorted(next(iter(each.values())))
            if -1 not in each and all(sorted(one) == first for one in each.values()):
                return (axis,), tuple(first)
        return None

    def groups(self, axes) -> list[tuple[int, ...]]:
        names = list(self.sizes)
        last = [names.index(axis) for axis in axes]
        order = [place for place in range(len(names)) if place not in last] + last
        length = int(np.prod([self.sizes[axis] for axis in axes], dtype=int))
        return [tuple(map(int, row)) for row in self._ids.transpose(order).reshape(-1, length)]

    def _find(self, groups) -> tuple[str, ...] | None:
        length = len(groups[0])
        for count in range(len(self.sizes) + 1):
            for axes in itertools.permutations(self.sizes, count):
                size = int(np.prod([self.sizes[axis] for axis in axes], dtype=int))
                if size == length and sorted(self.groups(axes)) == sorted(groups):
                    return axes
        return None

    def permutation(self, pairs, where: str) -> tuple[tuple[str, ...], list[tuple[int, int]]]:
        """The axis, or axes, along which ranks send, and who sends to whom there."""
        for count in range(1, len(self.sizes) + 1):
            for axes in itertools.combinations(self.sizes, count):
                if (found := self._along(axes, pairs)) is not None:
                    return axes, found
        raise Unrecordable(
            f"`{where}` that is not uniform along an axis of the mesh: {_short(pairs)}"
        )

    def _along(self, axes, pairs) -> list[tuple[int, int]] | None:
        groups = self.groups(axes)
        place = {
            rank: (row, at) for row, group in enumerate(groups) for at, rank in enumerate(group)
        }
        each: dict[int, set] = {row: set() for row in range(len(groups))}
        for source, target in pairs:
            (row, start), (other, end) = place[source], place[target]
            if row != other:
                return None
            each[row].add((start, end))
        uniform = all(one == each[0] for one in each.values())
        return sorted(each[0]) if uniform else None

    def axis(self, stride: int, size: int) -> str | None:
        """The axis whose index is `rank / stride % size`."""
        inner = 1
        for axis, extent in reversed(self.sizes.items()):
            if (inner, extent) == (stride, size):
                return axis
            inner *= extent
        return None


def _short(groups) -> str:
    words = str([list(one) for one in groups])
    return words if len(words) < 60 else words[:57] + "..."
