"""Numbers of a program that depend on the size of a mesh axis.

A mean over the rows of one rank divides by their number, a gradient by `lax.axis_size`: in a
jaxpr both are plain numbers. Which numbers are sizes follows from what the function asks while it
is traced. Where that is not certain it is traced again with one axis of size 1 at a time, on the
same whole arrays, and numbers that have changed by a power of the size are that power.
"""

import contextlib
import dataclasses
import difflib
import math
import warnings

from jax._src import core, source_info_util
from jax._src import shard_map as jax_shard_map
from jax.sharding import AbstractMesh

from ..specs import axes_of
from ..stablehlo.means import written
from ..versions import cached_apart, is_of_backward, newly_manual, partitions
from . import cuts
from .asked import Asked


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
    """A shard_map keeps the mesh that it was called with: what an earlier tracing left is taken
    back."""
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
    known = getattr(mesh, "stands_for", mesh)
    # JAX has one object for all meshes that are equal: one that has devices is kept.
    if not isinstance(known, AbstractMesh) or not hasattr(made, "stands_for"):
        object.__setattr__(made, "stands_for", known)  # a mesh is read-only otherwise
    return made


def is_itself(mesh) -> None:
    """A mesh that a program is recorded in stands for no other, whatever was made for another
    program: JAX has one object for all meshes that are equal."""
    if hasattr(mesh, "stands_for"):
        object.__delattr__(mesh, "stands_for")


@contextlib.contextmanager
def with_sizes(sizes: dict[str, int]):
    """Other sizes of axes for what is traced."""
    before = dict(_sizes)
    _sizes.update(sizes)
    try:
        with cached_apart():
            yield
    finally:
        _sizes.clear()
        _sizes.update(before)


@dataclasses.dataclass
class Sizes:
    """Literals of a jaxpr, by equation and position: the powers of axes that are in them."""

    powers: dict[tuple[int, int], dict] = dataclasses.field(default_factory=dict)
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)  # of the mesh
    # By equation that divides by what a rank has counted: attributes that say along which axes the
    # counts are equal, or differ.
    counts: dict[int, dict] = dataclasses.field(default_factory=dict)
    # Where it was traced with fewer ranks: the size that an axis has, and the one it has here.
    fewer: dict[int, int] = dataclasses.field(default_factory=dict)

    def number(self, eqn, atom, value):
        """The value of a literal, with the sizes that are in it."""
        if eqn is None or not isinstance(value, float):
            return value
        for place, one in enumerate(eqn.invars):
            if one is atom and (powers := self.powers.get((id(eqn), place))):
                return Sized.of(value, powers["base"], powers["of"])
        # A constant of the program that is as large as an axis may be its size.
        if eqn.primitive.name in ("mul", "div"):
            for size, here in self.fewer.items():
                if value in (size, 1 / size):
                    return float(here) if value == size else 1 / here
        return value

    def renamed(self, equations: dict, powers) -> "Sizes":
        """Of the same program made of other equations, by the numbers of its own, with other
        axes."""
        moved = {(id(equations[eqn]), place): entry | {"of": powers(entry["of"])}
                 for (eqn, place), entry in self.powers.items()}  # fmt: skip
        counts = {id(equations[eqn]): {word: list(powers(dict.fromkeys(axes, 1)))
                                       for word, axes in entry.items()}
                  for eqn, entry in self.counts.items()}  # fmt: skip
        return Sizes(moved, self.sizes, counts, self.fewer)

    def of_transposes(self, jaxpr) -> None:
        """The divisions that JAX writes before the backward of a shard_map: by the ranks that
        have the same cotangent."""
        made = {}
        for eqn in jaxpr.eqns:
            made |= dict.fromkeys(eqn.outvars, eqn)
            if eqn.primitive.name == "shard_map" and not eqn.params["check_vma"]:
                for atom, spec in zip(eqn.invars, eqn.params["in_specs"]):
                    if isinstance(atom, core.Var) and (division := made.get(atom)) is not None:
                        self._of_transpose(division, made, eqn, spec)
            for body in _bodies(eqn):
                self.of_transposes(body)

    def _of_transpose(self, division, made: dict, eqn, spec) -> None:
        cut = {axis for entry in partitions(spec) for axis in axes_of(entry)}
        ranks = {axis: size for axis, size in eqn.params["mesh"].shape.items()
                 if axis in newly_manual(eqn) - cut and size > 1}  # fmt: skip
        if division.primitive.name == "div" and is_of_backward(division):
            place, number = written(division, 1, made)
            if ranks and number == math.prod(ranks.values()):
                self.powers[place] = {"base": 1.0, "of": dict.fromkeys(ranks, 1)}

    def without_counts_of_all(self, jaxpr) -> None:
        """A number of elements on all ranks that the program makes with sizes of its own, and not
        with those of the mesh, is traced as if one rank had more: it has no size in it."""
        counts = [_key(self.powers[place]) for place in self._counts_of_all(jaxpr)]
        self.powers = {place: one for place, one in self.powers.items() if _key(one) not in counts}

    def _counts_of_all(self, jaxpr):
        """Divisors of a sum over a rank's elements, then over ranks: the number of both."""
        made = {}
        for eqn in jaxpr.eqns:
            made |= dict.fromkeys(eqn.outvars, eqn)
            place = (id(eqn), 1)
            below = {axis for axis, power in self._of(place).items() if power < 0}
            if eqn.primitive.name == "div" and below:
                counts, over = _elements(eqn.invars[0], made, self.sizes)
                if below <= over and _number(eqn.invars[1]) in counts:
                    yield place
            for body in _bodies(eqn):
                yield from self._counts_of_all(body)

    def _of(self, place) -> dict[str, int]:
        return self.powers.get(place, {"of": {}})["of"]

    def beside_sums(self, jaxpr) -> None:
        """A number right before a sum over as many ranks, or right after it, is their number,
        unless the program says there which number is, or one rank alone has something to add: a sum
        of that is no mean."""
        scope, used = _Scope(jaxpr), {}
        made = scope.made
        for eqn in jaxpr.eqns:
            for atom in eqn.invars:
                if isinstance(atom, core.Var):
                    used.setdefault(atom, []).append(eqn)
            for body in _bodies(eqn):
                self.beside_sums(body)
        for eqn in jaxpr.eqns:
            for atom, var in zip(eqn.invars, eqn.outvars) if eqn.primitive.name in _SUMS else ():
                before = [made[atom]] if isinstance(atom, core.Var) and atom in made else []
                after = used.get(var, [])
                if (turns := _turns(atom, made)) is not None:
                    later = [one for each in after for out in each.outvars
                             for one in used.get(out, []) if _factors([each])]  # fmt: skip
                    self._with_turns(after + before + later, eqn, turns)
                if not _is_of_one_rank(atom, scope):
                    self._beside(after + before, eqn)
        self._in_transposes(jaxpr.eqns)

    def _in_transposes(self, eqns: list) -> None:
        """The backward of a division divides by the same number."""
        known = {
            (_place_of(eqn), eqn.primitive.name, place, _number(eqn.invars[place])): of
            for eqn, place in _factors(eqns)
            if (of := self.powers.get((id(eqn), place))) is not None
        }
        for eqn, place in _factors(eqns) if known else ():
            if "transpose(" in str(eqn.source_info.name_stack):
                key = (_place_of(eqn), eqn.primitive.name, place, _number(eqn.invars[place]))
                if key in known:
                    self.powers.setdefault((id(eqn), place), known[key])

    def _ranks(self, psum) -> tuple[list[str], int]:
        axes = [axis for axis in psum.params["axes"] if self.sizes.get(axis, 1) > 1]
        return axes, math.prod(self.sizes[axis] for axis in axes)

    def _with_turns(self, eqns: list, psum, turns: int) -> None:
        """What a loop has added up in its turns, and then ranks, is divided by both at once."""
        axes, ranks = self._ranks(psum)
        for eqn, place in _factors(eqns) if ranks > 1 else ():
            for power in (1, -1):
                if math.isclose(_number(eqn.invars[place]), (turns * ranks) ** power, rel_tol=1e-6):
                    of = {"base": float(turns) ** power, "of": dict.fromkeys(axes, power)}
                    self.powers.setdefault((id(eqn), place), of)

    def _beside(self, eqns: list, psum) -> None:
        axes, ranks = self._ranks(psum)
        places = _factors(eqns)
        named = [self.powers.get((id(eqn), place), {"base": 0})["base"] for eqn, place in places]
        if ranks == 1 or 1.0 in named:
            return
        for eqn, place in places:
            for power in (1, -1):
                if math.isclose(_number(eqn.invars[place]), ranks**power, rel_tol=1e-6):
                    of = dict.fromkeys(axes, power)
                    self.powers.setdefault((id(eqn), place), {"base": 1.0, "of": of})
                    return

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


def _key(entry: dict) -> tuple:
    return entry["base"], tuple(entry["of"].items())


_SUMS = {"psum", "psum_invariant"}
_PASSES = _SUMS | {"pvary", "convert_element_type", "neg", "reshape", "squeeze", "copy"}


def _elements(atom, made: dict, sizes: dict[str, int]) -> tuple[set[int], set[str]]:
    """How many elements were added up for a value, or how many rows of these, on one rank and then
    over ranks, and over which axes; none: it is no such sum."""
    over: set[str] = set()
    while isinstance(atom, core.Var) and (eqn := made.get(atom)) is not None:
        if eqn.primitive.name == "reduce_sum":
            counts = {math.prod(sizes.get(axis, 1) for axis in over)}
            for dim in eqn.params["axes"]:
                counts |= {count * eqn.invars[0].aval.shape[dim] for count in counts}
            return counts, over
        if eqn.primitive.name not in _PASSES:
            break
        if eqn.primitive.name in _SUMS:
            over |= set(eqn.params["axes"])
        atom = eqn.invars[eqn.outvars.index(atom)] if len(eqn.outvars) > 1 else eqn.invars[0]
    return set(), over


def _factors(eqns: list) -> list[tuple]:
    """The plain numbers that equations multiply or divide by: with the equation, its operand."""
    return [(eqn, place) for eqn in eqns if eqn.primitive.name in ("mul", "div")
            for place, atom in enumerate(eqn.invars)
            if _number(atom) and (place or eqn.primitive.name == "mul")]  # fmt: skip


def _turns(atom, made: dict) -> int | None:
    """How often a loop was gone through that has added up a value; none: there is none."""
    while isinstance(atom, core.Var) and (eqn := made.get(atom)) is not None:
        place = eqn.outvars.index(atom)
        if eqn.primitive.name == "scan":
            carried = place < eqn.params["num_carry"] and eqn.params["length"] > 1
            return eqn.params["length"] if carried else None
        if eqn.primitive.name not in _PASSES and not _factors([eqn]):
            return None
        kept = [one for one in eqn.invars if isinstance(one, core.Var)]
        atom = kept[place] if len(kept) > place else None
    return None


class _Scope:
    """The equations of a jaxpr, and what its arguments are outside of it."""

    def __init__(self, jaxpr, arguments=(), outside=None):
        self.made = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
        self.arguments = {var: (atom, outside) for var, atom in zip(jaxpr.invars, arguments)}

    def made_by(self, atom):
        """The equation that makes a value, with its scope; through calls and loops."""
        scope = self
        while isinstance(atom, core.Var) and atom in scope.arguments:
            atom, scope = scope.arguments[atom]
        eqn = scope.made.get(atom) if isinstance(atom, core.Var) else None
        if eqn is not None and eqn.primitive.name in ("scan", "jit", "pjit"):
            body = eqn.params["jaxpr"].jaxpr
            inside = _Scope(body, eqn.invars, scope)
            return inside.made_by(body.outvars[eqn.outvars.index(atom)])
        return eqn, scope


def _is_of_one_rank(atom, scope: _Scope) -> bool:
    """Whether a number is added up of what is zero but where `axis_index` is some number."""
    todo, seen = [(atom, scope)], set()
    while todo:
        atom, scope = todo.pop()
        if getattr(atom.aval, "shape", None) != ():
            continue
        eqn, inside = scope.made_by(atom)
        if eqn is None or id(eqn) in seen:
            continue
        seen.add(id(eqn))
        if eqn.primitive.name == "select_n" and _asks_for_equal(eqn.invars[0], inside):
            return True
        todo += [(one, inside) for one in eqn.invars]
    return False


def _asks_for_equal(atom, scope: _Scope) -> bool:
    """Whether whole numbers have to be equal for a condition to be true."""
    if atom.aval.dtype != bool:
        return False
    eqn, inside = scope.made_by(atom)
    if eqn is None:
        return False
    if eqn.primitive.name == "eq":
        return eqn.invars[0].aval.dtype.kind in "iu"
    return any(_asks_for_equal(one, inside) for one in eqn.invars)


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


def _place_of(eqn) -> str:
    return source_info_util.summarize(eqn.source_info)


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
    """Axes of which fewer ranks have more than one element each of what they cut: a dimension of
    one element cannot be distinguished from one that is stretched."""
    found: dict[str, int] = {}
    handed_on: set = set()  # from shard_map to shard_map, as JAX stacks what a backward needs
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "shard_map":
            mesh, body = eqn.params["mesh"], eqn.params["jaxpr"]
            thin = _thin(body)
            for atom, spec, var in zip(eqn.invars, eqn.params["in_specs"], body.invars):
                if isinstance(atom, core.Var) and atom in handed_on:
                    continue
                for entry, extent in zip(partitions(spec), getattr(var.aval, "shape", ())):
                    thin.update(axes_of(entry) if extent == 1 else ())
            sizes = {axis: mesh.shape[axis] for axis in thin if axis in mesh.shape}
            found |= {axis: _fewer(size) for axis, size in sizes.items() if size > 2}
            handed_on.update(eqn.outvars)
        else:
            for body in _bodies(eqn):
                found |= smaller(body)
    return found


# The parameter that names the dimension of which each rank gets its block.
_CUTS = {"all_to_all": "split_axis", "reduce_scatter": "scatter_dimension"}


def _thin(jaxpr) -> set[str]:
    """The axes along which a collective gives each rank one element of a dimension."""
    found: set[str] = set()
    for eqn in jaxpr.eqns:
        dim = eqn.params.get(_CUTS.get(eqn.primitive.name))
        if dim is not None and eqn.params.get("tiled") and eqn.outvars[0].aval.shape[dim] == 1:
            found.update(axes_of(eqn.params["axis_name"]))
        for body in _bodies(eqn):
            found |= _thin(body)
    return found


def _manual_axes(jaxpr) -> set[str]:
    """The axes of shard_maps: what the program makes on others is of whole arrays."""
    found = set()
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "shard_map":
            found |= newly_manual(eqn)
        for body in _bodies(eqn):
            found |= _manual_axes(body)
    return found


def _fewer(size: int) -> int:
    """Divided by its smallest prime; a prime stays."""
    prime = next(one for one in range(2, size + 1) if size % one == 0)
    return size // prime if prime < size else size


def of_program(trace, closed, mesh, asked: Asked | None) -> Sizes:
    """trace: makes the jaxpr again, in the mesh that it is given; asked: what it asked when it was
    made. It is made again if that does not tell."""
    sizes = Sizes(sizes=dict(mesh.shape))
    numbers = cuts.Numbers(sizes.sizes, asked) if asked is not None else None
    if numbers is not None and numbers.read(closed.jaxpr):
        sizes.powers = numbers.powers
    else:
        _trace_again(sizes, trace, closed, mesh)
    sizes.without_counts_of_all(closed.jaxpr)
    sizes.beside_sums(closed.jaxpr)
    sizes.of_transposes(closed.jaxpr)
    return sizes


def _trace_again(sizes: Sizes, trace, closed, mesh) -> None:
    """With one rank on each axis in turn."""
    manual = _manual_axes(closed.jaxpr)
    for axis, size in mesh.shape.items():
        if size == 1 or axis not in manual:
            continue
        try:
            with with_sizes({axis: 1}):
                other = trace(resized(mesh))
        except Exception as error:  # of the program, whatever it is
            warnings.warn(
                f"the program cannot be traced with one rank on {axis}, so it is not known which of"
                f" its numbers are the size of this axis: {error}",
                stacklevel=5,
            )
        else:
            sizes.compare(closed.jaxpr, other.jaxpr, axis, size)
