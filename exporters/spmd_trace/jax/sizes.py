"""Numbers of a program that depend on the size of a mesh axis.

A mean over the rows of one rank divides by their number, a gradient by `lax.axis_size`: in a jaxpr both are
plain numbers. The function is traced again with one axis of size 1 at a time, on the same whole arrays, and
numbers that have changed by a power of the size are that power.
"""

import contextlib
import dataclasses
import difflib
import math
import warnings

from jax._src import core
from jax._src import shard_map as jax_shard_map
from jax.sharding import AbstractMesh


class Sized(float):
    """A number that is `base` times powers of the sizes of axes."""

    base: float
    powers: dict[str, int]

    @classmethod
    def of(cls, value, base: float, powers: dict[str, int]) -> "Sized":
        made = cls(value)
        made.base, made.powers = base, powers
        return made


def words(powers: dict[str, int]) -> str:
    """Powers of axes as the format writes a scale."""
    above = [axis for axis, power in powers.items() for _ in range(power)]
    below = [axis for axis, power in powers.items() for _ in range(-power)]
    top, bottom = "*".join(above) or "1", "*".join(below)
    if not bottom:
        return top
    return f"{top}/{bottom}" if len(below) == 1 else f"{top}/({bottom})"


class _Resized(AbstractMesh):
    """A mesh that stands for another one while a function is traced."""


_sizes: dict[str, int] = {}  # of the axes that have another size now
_checks = jax_shard_map._shmap_checks


def _resized_checks(mesh, *args):
    """A shard_map keeps the mesh that it was called with: what an earlier tracing left is taken back."""
    mesh = getattr(mesh, "stands_for", mesh)
    if not _sizes or mesh is None:
        return _checks(mesh, *args)
    made = resized(mesh)
    return _checks(made, *args)


jax_shard_map._shmap_checks = _resized_checks


def resized(mesh) -> AbstractMesh:
    abstract = mesh.abstract_mesh
    sizes = [_sizes.get(axis, size) for axis, size in abstract.shape.items()]
    made = _Resized(tuple(sizes), abstract.axis_names, axis_types=abstract.axis_types)
    # A mesh is read-only otherwise.
    object.__setattr__(made, "stands_for", getattr(mesh, "stands_for", mesh))
    return made


@contextlib.contextmanager
def with_sizes(sizes: dict[str, int]):
    """Other sizes of axes for what is traced."""
    before = dict(_sizes)
    _sizes.update(sizes)
    try:
        yield
    finally:
        _sizes.clear()
        _sizes.update(before)


@dataclasses.dataclass
class Sizes:
    """Literals of a jaxpr, by equation and position: the powers of axes that are in them."""

    powers: dict[tuple[int, int], dict[str, int]] = dataclasses.field(default_factory=dict)

    def number(self, eqn, atom, value):
        """The value of a literal, with the sizes that are in it."""
        if eqn is None or not isinstance(value, float) or not self.powers:
            return value
        for place, one in enumerate(eqn.invars):
            if one is atom and (powers := self.powers.get((id(eqn), place))):
                return Sized.of(value, powers["base"], powers["of"])
        return value

    def compare(self, jaxpr, other, axis: str, size: int) -> None:
        """Notes the literals of the jaxpr that differ in another one, where the axis has size 1."""
        for mine, its in _pairs(jaxpr.eqns, other.eqns):
            self._literals(mine, its, axis, size)
            for body, its_body in zip(_bodies(mine), _bodies(its) if its is not None else ()):
                self.compare(body, its_body, axis, size)

    def _literals(self, eqn, theirs, axis: str, size: int) -> None:
        """theirs: the same equation; none: JAX leaves out divisions by 1."""
        if theirs is None and eqn.primitive.name != "div":
            return
        for place, atom in enumerate(eqn.invars):
            if isinstance(atom, core.Literal) and isinstance(_number(atom), float):
                its = 1.0 if theirs is None else _number(theirs.invars[place])
                if power := _power(_number(atom), its, size):
                    none = {"base": _number(atom), "of": {}}
                    entry = self.powers.setdefault((id(eqn), place), none)
                    entry["base"] /= size**power
                    entry["of"][axis] = power


def _pairs(ours: list, others: list):
    """Equations that stand for each other; with none, what only one rank more makes."""
    names, other_names = ([one.primitive.name for one in eqns] for eqns in (ours, others))
    if names == other_names:
        yield from zip(ours, others)
        return
    matcher = difflib.SequenceMatcher(None, names, other_names, autojunk=False)
    for word, first, last, other, _ in matcher.get_opcodes():
        for place in range(first, last):
            if word == "equal":
                yield ours[place], others[other + place - first]
            elif word == "delete":
                yield ours[place], None


def _number(atom):
    if not isinstance(atom, core.Literal) or getattr(atom.val, "shape", ()):
        return None
    return atom.val.item() if hasattr(atom.val, "item") else atom.val


def _power(one, other, size: int) -> int:
    """How often the size is in the quotient of two numbers; 0 where they are equal or unlike."""
    if not isinstance(other, float) or not all(map(math.isfinite, (one, other))):
        return 0
    if not one or not other or one / other <= 0:
        return 0
    power = math.log(one / other, size)
    return round(power) if abs(power - round(power)) < 1e-5 and round(power) else 0


def _bodies(eqn) -> list:
    found = []
    for value in eqn.params.values():
        for one in value if isinstance(value, (tuple, list)) else [value]:
            if isinstance(one, core.ClosedJaxpr):
                found.append(one.jaxpr)
            elif isinstance(one, core.Jaxpr):
                found.append(one)
    return found


def smaller(jaxpr) -> dict[str, int]:
    """Axes of which fewer ranks have more than one element each of what they cut: a dimension of one element is
    not to be told from one that is stretched."""
    found: dict[str, int] = {}
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "shard_map":
            mesh = eqn.params["mesh"]
            for spec, var in zip(eqn.params["in_specs"], eqn.params["jaxpr"].invars):
                for entry, extent in zip(spec.partitions, getattr(var.aval, "shape", ())):
                    for axis in entry if isinstance(entry, tuple) else [entry]:
                        if extent == 1 and axis is not None and mesh.shape[axis] > 2:
                            found[axis] = _fewer(mesh.shape[axis])
        else:
            for body in _bodies(eqn):
                found |= smaller(body)
    return found


def _fewer(size: int) -> int:
    """Divided by its smallest prime; a prime stays."""
    prime = next(one for one in range(2, size + 1) if size % one == 0)
    return size // prime if prime < size else size


def of_program(trace, closed, mesh) -> Sizes:
    """trace: makes the jaxpr again, in the mesh that it is given."""
    sizes = Sizes()
    for axis, size in mesh.shape.items():
        if size == 1:
            continue
        try:
            with with_sizes({axis: 1}):
                other = trace(resized(mesh))
        except Exception as error:  # of the program, whatever it is
            warnings.warn(
                f"the program cannot be traced with one rank on {axis}, so it is not known which of"
                f" its numbers are the size of this axis: {error}",
                stacklevel=4,
            )
        else:
            sizes.compare(closed.jaxpr, other.jaxpr, axis, size)
    return sizes
