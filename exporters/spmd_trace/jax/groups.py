"""Collectives within groups of an axis: the axis becomes two or more, of which the groups are some.

Eight ranks that sum within [0, 1, 2, 3] and [4, 5, 6, 7] are two times four: the sum is over the
inner axis. Where the program has the axis as a whole, it is over all of them.
"""

import itertools

from jax._src import core
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from .document import Program
from .refused import Unrecordable
from .specs import axes_of
from .unchecked import record_unchecked
from .versions import partitions

Parts = dict[
    str, dict[str, int]
]  # of axes: the names and sizes of what they become, outermost first


def record(closed, mesh, names, sizes, specs) -> Program:
    """The program of a jaxpr of whole arrays, as `record_unchecked` does it, over the axes that
    its groups make."""
    parts = parts_of(closed.jaxpr, dict(mesh.shape))
    if parts:
        refined = Refined(mesh, parts)
        closed, mesh = refined.closed(closed), refined.mesh
        sizes = sizes.renamed(refined.equations, refined.powers)
        specs = [refined.spec(one) for one in specs]
    return record_unchecked(closed, mesh, names, sizes, specs)


def _equations(jaxpr):
    for eqn in jaxpr.eqns:
        yield eqn
        for body in core.jaxprs_in_params(eqn.params):
            yield from _equations(body)


def _over(eqn) -> list:
    names = eqn.params.get("axes", eqn.params.get("axis_name", ()))
    return list(names) if isinstance(names, (tuple, list)) else [names]


def parts_of(jaxpr, sizes: dict[str, int]) -> Parts:
    """What the axes with groups become."""
    borders: dict[str, set[int]] = {}
    for eqn in _equations(jaxpr):
        groups = eqn.params.get("axis_index_groups")
        if groups is None:
            continue
        (axis,) = names if len(names := _over(eqn)) == 1 else (None,)
        if axis is None:
            raise Unrecordable(f"`{eqn.primitive.name}` within groups of more than one axis")
        stride, length = _layout(groups)
        borders.setdefault(axis, {1, sizes[axis]}).update((stride, stride * length))
    parts: Parts = {}
    for axis, found in borders.items():
        inner = sorted(found)
        if any(above % below for below, above in itertools.pairwise(inner)):
            raise Unrecordable(f"groups of {axis} that are no grid: {inner[1:-1]}")
        extents = [above // below for below, above in itertools.pairwise(inner)]
        if len(extents) > 1:
            parts[axis] = {f"{axis}_{place}": size for place, size in enumerate(reversed(extents))}
    return parts


def _layout(groups) -> tuple[int, int]:
    """The stride within a group of ranks, and how many it has."""
    first = min(map(sorted, groups))
    return (first[1] - first[0] if len(first) > 1 else 1), len(first)


class Refined:
    """A program over axes of which some have become others."""

    def __init__(self, mesh, parts: Parts):
        self.parts, self.sizes = parts, dict(mesh.shape)
        self.mesh = self._mesh(mesh)
        self.equations: dict[int, core.JaxprEqn] = {}  # by the number of what it was made of

    def _mesh(self, mesh) -> AbstractMesh:
        kinds = [
            (name, size, kind)
            for (axis, whole), kind in zip(mesh.shape.items(), mesh.axis_types)
            for name, size in self.parts.get(axis, {axis: whole}).items()
        ]
        names, extents, types = zip(*kinds)
        return AbstractMesh(extents, names, axis_types=types)

    def _names(self, axes) -> list[str]:
        return [name for axis in axes for name in self.parts.get(axis, [axis])]

    def spec(self, spec: PartitionSpec | None) -> PartitionSpec | None:
        if spec is None:
            return None
        entries = [self._names(axes_of(one)) for one in partitions(spec)]
        return PartitionSpec(*[tuple(one) if one else None for one in entries])

    def powers(self, of: dict[str, int]) -> dict[str, int]:
        return {name: power for axis, power in of.items() for name in self._names([axis])}

    def jaxpr(self, jaxpr: core.Jaxpr) -> core.Jaxpr:
        made = [one.replace(params=self._params(one)) for one in jaxpr.eqns]
        self.equations |= {id(one): other for one, other in zip(jaxpr.eqns, made)}
        return jaxpr.replace(eqns=made)

    def closed(self, closed: core.ClosedJaxpr) -> core.ClosedJaxpr:
        return core.ClosedJaxpr(self.jaxpr(closed.jaxpr), closed.consts)

    def _params(self, eqn) -> dict:
        params = {name: self._param(name, value) for name, value in eqn.params.items()}
        for name in ("axes", "axis_name"):
            names = _over(eqn)
            if name in params and all(isinstance(one, str) for one in names) and names:
                params[name] = self._within(eqn, names)
        if "axis_index_groups" in params:
            params["axis_index_groups"] = None
        return params

    def _within(self, eqn, names: list[str]) -> tuple[str, ...]:
        groups = eqn.params.get("axis_index_groups")
        if groups is None:
            return tuple(self._names(names))
        stride, length = _layout(groups)
        found, inner = [], 1
        for name, size in reversed(
            self.parts.get(names[0], {names[0]: self.sizes[names[0]]}).items()
        ):
            if stride <= inner < stride * length:
                found.insert(0, name)
            inner *= size
        wanted = [
            tuple(stride * turn + first for turn in range(length))
            for first in _firsts(inner, stride, length)
        ]
        if sorted(map(tuple, groups)) != wanted:
            raise Unrecordable(
                f"`{eqn.primitive.name}` within groups that are no grid: {list(map(list, groups))}"
            )
        return tuple(found)

    def _param(self, name: str, value):
        if isinstance(value, core.ClosedJaxpr):
            return self.closed(value)
        if isinstance(value, core.Jaxpr):
            return self.jaxpr(value)
        if isinstance(value, PartitionSpec):
            return self.spec(value)
        if isinstance(value, NamedSharding):
            return NamedSharding(self.mesh, self.spec(value.spec))
        if isinstance(value, AbstractMesh):
            return self._mesh(value)
        if name in ("newly_manual_axes", "manual_axes"):
            return frozenset(self._names(value))
        if isinstance(value, (tuple, list)):
            return (
                type(value)(self._param(name, one) for one in value)
                if type(value) in (tuple, list)
                else value
            )
        return value


def _firsts(ranks: int, stride: int, length: int) -> list[int]:
    """The first rank of each group."""
    block = stride * length
    return [start + inner for start in range(0, ranks, block) for inner in range(stride)]
