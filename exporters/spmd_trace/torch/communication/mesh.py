"""Meshes as size:stride layouts, and the axes that a process group runs along.

A group is known by its ranks alone: names differ between frameworks, layouts do not.
"""

import dataclasses
import itertools
import math


@dataclasses.dataclass(frozen=True)
class Axis:
    """A named direction of the rank grid: `size` ranks, `stride` apart; global unless `local`."""

    name: str
    size: int
    stride: int
    role: str | None = None
    local: bool = False

    def json(self) -> dict:
        entry = {"name": self.name, "size": self.size, "stride": self.stride}
        entry |= {"policy": "local"} if self.local else {}
        return entry | ({"role": self.role} if self.role else {})


@dataclasses.dataclass(frozen=True)
class Context:
    """How an operation is checked: its mesh, the local axes, whether at all."""

    mesh: str
    local: tuple[str, ...]
    check: bool = True

    def json(self) -> dict:
        entry: dict = {"mesh": self.mesh}
        if self.local:
            entry["local"] = list(self.local)
        return entry if self.check else entry | {"check": False}


def spec_of(cuts: list[list[str]]) -> list[str | list[str] | None]:
    """A partition spec: per dimension no axis, the one that cuts it, or several, outermost
    first."""
    return [axes if len(axes) > 1 else axes[0] if axes else None for axes in cuts]


def axes_in(entry: str | list[str] | None) -> list[str]:
    """The axes of one entry of a partition spec."""
    return entry if isinstance(entry, list) else [] if entry is None else [entry]


class Mesh:
    """Axes, outermost first, that together number the ranks of a program."""

    def __init__(self, name: str, axes: list[Axis], flattened: dict[str, list[str]] | None = None):
        """`flattened` names tuples of axes, outermost first; types stay on the axes themselves."""
        self.name = name
        self.axes = tuple(axes)
        self.flattened = flattened or {}
        self.world = math.prod(axis.size for axis in axes)
        pieces = sorted((axis.stride, axis.size) for axis in axes if axis.size > 1)
        reach = 0
        for stride, size in pieces:
            if stride <= reach:
                raise ValueError(f"mesh {name}: axes overlap at stride {stride}")
            reach += stride * (size - 1)

    def mark(self, names, role: str) -> None:
        """Says what axes of these names are for."""
        self.axes = tuple(
            dataclasses.replace(axis, role=role) if axis.name in names else axis
            for axis in self.axes
        )

    def axis(self, name: str) -> Axis:
        for axis in self.axes:
            if axis.name == name:
                return axis
        raise KeyError(f"mesh {self.name} has no axis {name}")

    def pieces(self, name: str) -> list[str]:
        """The axes that a name stands for: those of a flattened axis, else itself."""
        return self.flattened.get(name) or [self.axis(name).name]

    def has(self, name: str) -> bool:
        return name in self.flattened or any(axis.name == name for axis in self.axes)

    def ranks(self, names: list[str]) -> int:
        """How many ranks the axes reach together."""
        return math.prod(self.axis(piece).size for name in names for piece in self.pieces(name))

    def kinds(self, **kinds: str) -> dict[str, str]:
        """A kind per axis, outermost first, where flattened and absent axes may be named."""
        named = {name: kind for name, kind in kinds.items() if self.has(name)}
        found = {piece: kind for name, kind in named.items() for piece in self.pieces(name)}
        return {axis.name: found[axis.name] for axis in self.axes if axis.name in found}

    def coordinate(self, name: str, rank: int) -> int:
        axis = self.axis(name)
        return rank // axis.stride % axis.size

    def ranks_along(self, axes: tuple[Axis, ...], rank: int) -> list[int]:
        """The ranks that `rank` reaches by moving along `axes`, the last axis fastest."""
        base = rank - sum(self.coordinate(axis.name, rank) * axis.stride for axis in axes)
        steps = itertools.product(*(range(axis.size) for axis in axes))
        return [base + sum(i * a.stride for i, a in zip(step, axes)) for step in steps]

    def axes_of_group(self, ranks: list[int], rank: int) -> list[str] | None:
        """The axes that a group runs along, outermost first; None for an irregular group."""
        real = [axis for axis in self.axes if axis.size > 1]
        for count in range(1, len(real) + 1):
            for chosen in itertools.combinations(real, count):
                if self.ranks_along(chosen, rank) == list(ranks):
                    names = [axis.name for axis in chosen]
                    whole = [flat for flat, pieces in self.flattened.items() if pieces == names]
                    return whole[:1] or names
        return None

    def context(self, local: bool) -> Context:
        """Where all axes of the mesh are local, or none is."""
        return Context(self.name, tuple(axis.name for axis in self.axes) if local else ())

    def json(self) -> dict:
        flattened = [{"name": name, "of": pieces} for name, pieces in self.flattened.items()]
        return {"id": self.name, "axes": [axis.json() for axis in self.axes] + flattened}
