"""Which axes cut each dimension of what a program computes, where that is certain; and from it,
which of its numbers are sizes.
"""

import collections
import functools
import math

from jax._src import core

from ..stablehlo.means import Means, Tags
from .asked import Asked, is_inside, place_of

UNKNOWN = frozenset({"?"})  # no name of an axis
NONE = frozenset()

# Results are as the first operand, dimension by dimension.
_AS_FIRST = {
    "dynamic_update_slice", "scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max",
    "cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "rev", "copy", "reduce_precision",
    "convert_element_type", "optimization_barrier", "ppermute", "pvary", "reduced_vary_cast",
}  # fmt: skip
# Where JAX has functions that may make numbers of extents, and where in there it does not.
_LIBRARIES = ("_src/numpy/", "_src/nn/", "_src/image/", "_src/scipy/", "_src/cudnn/",
              "_src/ops/", "/experimental/", "jax/numpy/", "jax/nn/", "jax/scipy/")  # fmt: skip
_OPERATORS = ("ufuncs.py", "array_methods.py", "ufunc_api.py", "util.py", "indexing.py",
              "tensor_contractions.py", "einsum.py", "scalar_types.py", "array_creation.py",
              "__init__.py")  # fmt: skip
_MOST = 1 << 48  # elements that may be counted
_SPREAD = "broadcast_in_dim"
_SQUARES = {"square", "integer_pow"}  # whose derivatives have numbers of their own
_MEANS, _MEAN_WORDS = "_src/numpy/reductions.py", ("mean", "var", "std", "average", "count")


class Cuts(Means):
    """What cuts dimensions: sets of axes, in which a mark says that they are not known."""

    def __init__(self, sizes: dict[str, int], asked: Asked):
        super().__init__(sizes, {})
        self.asked = asked
        self.extents: set[int] = set()  # that may be cut
        self.tags: dict = {}  # by variable
        self.by_extent: dict[int, set] = {}
        self.by_shape: dict[tuple, set] = {}  # by shape and dimension

    def read(self, jaxpr) -> None:
        # What is made anew may be cut if something else is that has its extent.
        before = None
        while before != self.extents:
            before = set(self.extents)
            self.tags, self.by_extent, self.by_shape = {}, {}, {}
            self._outside(jaxpr)
            self.extents |= {extent for extent, found in self.by_extent.items() if found != {NONE}}
            self.extents |= {extent for extent, sources in self.asked.sources.items()
                             if any(map(self.may_be_size, sources))}  # fmt: skip

    def may_be_size(self, source) -> bool:
        """Of what a program asked: an axis, or a dimension."""
        if isinstance(source, str):
            return self.sizes.get(source, 1) > 1
        shape, dim = source
        found = self.by_shape.get(source)
        return shape[dim] in self.extents if found is None else found != {NONE}

    def _body(self, jaxpr, ins: list[Tags]) -> list[Tags]:
        here: dict = {}  # of this call: there may be others of the same body
        self._note_tags(jaxpr.invars, ins, here)
        for var in jaxpr.constvars:
            self._note_tags([var], [self._new_all(var)], here)
        for eqn in jaxpr.eqns:
            results = self._equation(eqn, [self._in(here, atom) for atom in eqn.invars])
            self._note_tags(eqn.outvars, results, here)
        return [self._in(here, atom) for atom in jaxpr.outvars]

    def _in(self, known: dict, atom) -> Tags:
        return known[atom] if isinstance(atom, core.Var) and atom in known else self._new_all(atom)

    def _note_tags(self, variables, tags: list[Tags], here: dict) -> None:
        for var, one in zip(variables, tags):
            one = [NONE if extent == 1 and not tag else tag
                   for extent, tag in zip(getattr(var.aval, "shape", ()), one)]  # fmt: skip
            here[var] = one
            if (known := self.tags.get(var)) is not None:  # a body that is used twice
                one = [a if a == b else a | b | UNKNOWN for a, b in zip(known, one)]
            self.tags[var] = one
            shape = getattr(var.aval, "shape", ())
            for dim, (extent, tag) in enumerate(zip(shape, one)):
                self.by_extent.setdefault(extent, set()).add(tag)
                self.by_shape.setdefault((shape, dim), set()).add(tag)

    def of(self, atom) -> Tags:
        """In all calls of its body."""
        return self._in(self.tags, atom)

    def new(self, extent: int) -> frozenset[str]:
        """Of a dimension that is made of a number."""
        is_other = extent == 1 and 1 not in self.asked.sources  # as what is stretched has
        return UNKNOWN if extent in self.extents and not is_other else NONE

    def _new_all(self, atom, eqn=None) -> Tags:
        """eqn: makes it, of numbers that the program may have asked for."""
        shape = getattr(atom.aval, "shape", ())
        found = [self.new(extent) for extent in shape]
        if eqn is not None and UNKNOWN in found:
            place = place_of(eqn.source_info)
            for dim, extent in enumerate(shape):
                if (sources := self.asked.extents.get((place, extent))) is not None:
                    found[dim] = self._of_source(sources)
        return found

    def _of_source(self, sources: dict) -> frozenset[str]:
        """Of an extent that is one of another dimension, times numbers."""
        sized = [(one, power) for one, power in sources.items() if self.may_be_size(one)]
        if not sized:
            return NONE
        ((source, power),) = sized if len(sized) == 1 else [(sized[0][0], 0)]
        powers = self.sizes_in(source) if power == 1 and not isinstance(source, str) else None
        return UNKNOWN if powers is None else frozenset(powers)

    def sizes_in(self, source) -> dict[str, int] | None:
        """The powers of axes in the extent of a dimension; none: that is not known."""
        if not self.may_be_size(source):
            return {}
        found = self.by_shape.get(source, {UNKNOWN})
        (one,) = found if len(found) == 1 else (UNKNOWN,)
        return None if "?" in one else dict.fromkeys(one, -1)

    # --- rules ------------------------------------------------------------------------------------

    def _equation(self, eqn, ins: list[Tags]) -> list[Tags]:
        name = eqn.primitive.name
        if name == "cond":
            return self._branches(eqn, ins)
        if name in ("custom_linear_solve", "custom_root"):
            return [self._new_all(var) for var in eqn.outvars]
        found = super()._equation(eqn, ins)
        return [one if len(one) == len(getattr(var.aval, "shape", ())) else self._new_all(var)
                for var, one in zip(eqn.outvars, found)]  # fmt: skip

    def _branches(self, eqn, ins: list[Tags]) -> list[Tags]:
        every = [self._body(one.jaxpr, ins[1:]) for one in eqn.params["branches"]]
        return [[_agreed(tags) for tags in zip(*one)] for one in zip(*every)]

    def _scan(self, eqn, ins: list[Tags]) -> list[Tags]:
        found = super()._scan(eqn, ins)
        length, first = self.new(eqn.params["length"]), eqn.params["num_carry"]
        given = [one[0] for one in ins[eqn.params["num_consts"] + first :]]
        length = _agreed([*given, length])
        return [*found[:first], *([length, *one[1:]] for one in found[first:])]

    def _of_equal_rank(self, var, atoms, ins: list[Tags]) -> Tags:
        """An operation on each element: operands have the extents of the result, or one element
        that is stretched."""
        shape = getattr(var.aval, "shape", ())
        given = [(getattr(atom.aval, "shape", ()), tags) for atom, tags in zip(atoms, ins)]
        given = [one for one in given if one[0]]
        if not given or any(not _fits(one, shape) for one, _ in given):
            return self._new_all(var)
        found = []
        for dim, extent in enumerate(shape):
            tags = [tags[dim] for one, tags in given if one[dim] == extent]
            found.append(_agreed(tags) if tags else self.new(extent))
        return found

    def _of_first(self, eqn, ins):
        return list(ins[0])

    def _of_broadcast_in_dim(self, eqn, ins):
        found = self._new_all(eqn.outvars[0], eqn)
        for dim, place in enumerate(eqn.params["broadcast_dimensions"]):
            if eqn.invars[0].aval.shape[dim] == eqn.outvars[0].aval.shape[place] != 1:
                found[place] = ins[0][dim]
        return found

    def _of_reshape(self, eqn, ins):
        """What is joined is cut by all axes that cut its parts. Of what is split it is the part
        that the program leaves open, if it says the others, else that is not known."""
        old, new = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
        found, place, dim = [NONE for _ in new], 0, 0
        while place < len(new) and dim < len(old):
            first, have, want, tags = place, old[dim], new[place], ins[0][dim]
            while have != want:
                if have < want and dim + 1 < len(old):
                    dim += 1
                    twice = UNKNOWN if tags & ins[0][dim] else NONE
                    have, tags = have * old[dim], tags | ins[0][dim] | twice
                elif place + 1 < len(new):
                    place += 1
                    want *= new[place]
                else:
                    return self._new_all(eqn.outvars[0])
            parts = [one for one in range(first, place + 1) if new[one] > 1]
            if tags and len(parts) > 1:
                key = (place_of(eqn.source_info), tuple(new))
                open_one, sources = self.asked.inferred.get(key, (None, ()))
                stated = [self.may_be_size(source) for one in parts if one != open_one and sources
                          for source in sources[one]]  # fmt: skip
                if open_one in parts and not any(stated):
                    parts = [open_one]
            for one in parts:
                found[one] = tags if len(parts) == 1 or not tags else tags | UNKNOWN
            place, dim = place + 1, dim + 1
        return found

    def _of_dot_general(self, eqn, ins):
        (_, _), (batch_x, batch_y) = eqn.params["dimension_numbers"]
        ins = [list(one) for one in ins]
        for dim, other in zip(batch_x, batch_y):
            ins[0][dim] = ins[1][other] = _agreed([ins[0][dim], ins[1][other]])
        return super()._of_dot_general(eqn, ins)

    def _kept(self, eqn, ins):
        """What is taken whole is as it was; a part of what is cut is not known."""
        out = eqn.outvars[0].aval.shape
        return [tag if extent == whole and tag else NONE if not tag else UNKNOWN
                for tag, extent, whole in zip(ins[0], out, eqn.invars[0].aval.shape)]  # fmt: skip

    _of_slice = _of_dynamic_slice = _of_pad = _of_sort = _kept

    def _of_concatenate(self, eqn, ins):
        dim = eqn.params["dimension"]
        found = [_agreed(tags) for tags in zip(*ins)]
        joined = {tags[dim] for tags in ins}
        found[dim] = found[dim] if len(joined) == 1 else UNKNOWN
        return found

    def _of_gather(self, eqn, ins):
        numbers, shape = eqn.params["dimension_numbers"], eqn.outvars[0].aval.shape
        batch = iter(ins[1][:-1])
        rows = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
        kept = iter([dim for dim in range(len(ins[0])) if dim not in rows])
        found = []
        for dim, extent in enumerate(shape):
            if dim not in numbers.offset_dims:
                found.append(next(batch))
                continue
            whole = next(kept)
            is_whole = extent == eqn.invars[0].aval.shape[whole]
            found.append(ins[0][whole] if is_whole or not ins[0][whole] else UNKNOWN)
        return found

    def _of_iota(self, eqn, ins):
        return self._new_all(eqn.outvars[0], eqn)

    def _of_random_bits(self, eqn, ins):
        """For each key, what is drawn with it."""
        found = self._new_all(eqn.outvars[0], eqn)
        found[: len(ins[0])] = ins[0]
        return found

    def _of_conv_general_dilated(self, eqn, ins):
        """The examples are kept; positions and channels are made anew."""
        numbers, found = eqn.params["dimension_numbers"], self._new_all(eqn.outvars[0])
        if eqn.params["batch_group_count"] == 1:
            found[numbers.out_spec[0]] = ins[0][numbers.lhs_spec[0]]
        return found

    def _windows(self, eqn, ins):
        """What no window is over is kept."""
        found = self._new_all(eqn.outvars[0])
        for dim, window in enumerate(eqn.params["window_dimensions"]):
            if window == eqn.params["window_strides"][dim] == 1:
                found[dim] = ins[0][dim]
        return found

    _of_reduce_window_max = _of_reduce_window_min = _of_reduce_window_sum = _windows

    def _of_select_n(self, eqn, ins):
        shape = eqn.outvars[0].aval.shape
        cases = ins if getattr(eqn.invars[0].aval, "shape", ()) == shape else ins[1:]
        return [_agreed(tags) for tags in zip(*cases)]

    def _of_all_gather(self, eqn, ins):
        found = super()._of_all_gather(eqn, ins)
        axes, dim = set(_axes(eqn)), eqn.params["all_gather_dimension"]
        whole = eqn.params["tiled"] and axes <= ins[0][dim] and "?" not in ins[0][dim]
        if not whole:  # the extent grows with the ranks
            found[dim] = UNKNOWN
        return found

    def _of_reduce_scatter(self, eqn, ins):
        dim = eqn.params["scatter_dimension"]
        if eqn.params["tiled"]:
            found = super()._of_reduce_scatter(eqn, ins)
            found[dim] |= UNKNOWN if ins[0][dim] & set(_axes(eqn)) else NONE
            return found
        return [*ins[0][:dim], *ins[0][dim + 1 :]]

    def _of_all_to_all(self, eqn, ins):
        found, axes = list(ins[0]), set(_axes(eqn))
        gathered, cut = eqn.params["concat_axis"], eqn.params["split_axis"]
        if not eqn.params["tiled"] or gathered == cut:
            return [UNKNOWN if one in (gathered, cut) else tag for one, tag in enumerate(found)]
        known = axes <= found[gathered] and "?" not in found[gathered]
        found[gathered] = found[gathered] - axes if known else UNKNOWN
        found[cut] = found[cut] | axes if not axes & found[cut] else UNKNOWN
        return found


for _name in _AS_FIRST:
    setattr(Cuts, f"_of_{_name}", Cuts._of_first)


class Numbers:
    """Which float literals are sizes, by what the program asked and where JAX takes means."""

    def __init__(self, sizes: dict[str, int], asked: Asked):
        self.cuts, self.asked = Cuts(sizes, asked), asked
        self.sizes = {axis: size for axis, size in sizes.items() if size > 1}
        self.powers: dict[tuple[int, int], dict] = {}
        self.known: dict[tuple, dict] = {}  # by place in the program and value
        self.rest: list[tuple] = []
        self.seen: set = set()  # operands that are literals
        self.users: dict[int, list] = {}  # of literals that are handed to another shard_map

    def read(self, jaxpr) -> bool:
        """Whether that is certain of all of them."""
        self.cuts.read(jaxpr)
        self._hand_on(jaxpr)
        if self.asked.unseen or any(map(self.cuts.may_be_size, self.asked.escaped)):
            return False
        return (
            all(map(self._body, _mapped_bodies(jaxpr)))
            and all(self._other(*one) for one in self.rest)
            and all(map(self._is_seen, self.asked.operands.items()))
        )

    def _is_seen(self, operand) -> bool:
        """Whether it is clear what became of an operand."""
        key, powers = operand
        return key in self.seen or not any(map(self.cuts.may_be_size, powers or ()))

    def _hand_on(self, jaxpr) -> None:
        """What the forward of a shard_map hands its backward: numbers among it."""
        numbers: dict = {}
        for eqn in jaxpr.eqns:
            if eqn.primitive.name != "shard_map":
                for body in core.jaxprs_in_params(eqn.params):
                    self._hand_on(body)
                continue
            body = eqn.params["jaxpr"]
            made = {var: one for one in body.eqns for var in one.outvars}
            for var, atom in zip(eqn.outvars, body.outvars):
                if (one := made.get(atom)) is not None and one.primitive.name == _SPREAD:
                    if isinstance(one.invars[0], core.Literal):
                        numbers[var] = id(one)
            for var, atom in zip(body.invars, eqn.invars):
                if isinstance(atom, core.Var) and atom in numbers:
                    self.users.setdefault(numbers[atom], []).extend(_users(body, var))

    def _body(self, jaxpr) -> bool:
        made: dict = {}
        for eqn in jaxpr.eqns:
            made |= dict.fromkeys(eqn.outvars, eqn)
            for place, atom in enumerate(eqn.invars):
                if (value := _scalar(atom)) is not None and not self._literal(
                    eqn, place, value, made
                ):
                    return False
            if not all(map(self._body, core.jaxprs_in_params(eqn.params))):
                return False
        return True

    def _literal(self, eqn, place: int, value, made: dict) -> bool:
        if not math.isfinite(value) or not (isinstance(value, float) or self.asked.operands):
            return True
        key = (place_of(eqn.source_info), value)
        if key in self.asked.operands:
            self.seen.add(key)
        if not isinstance(value, float) or abs(value) in (0.0, 1.0):
            return True
        if key in self.asked.operands:
            return self._note(eqn, place, key, self._of_sources(self.asked.operands[key]))
        counted = self._counted(eqn, place, value, made)
        if counted is None:
            self.rest.append((eqn, place, key))
            return True
        powers = None if "?" in counted else {axis: -n for axis, n in counted.items()}
        return self._note(eqn, place, key, powers)

    def _counted(self, eqn, place: int, value: float, made: dict):
        """What cuts the dimensions that a mean is over, each as often as it does; none: it is no
        number of elements."""
        if eqn.primitive.name != "div" or place != 1 or not _is_of_mean(eqn):
            return None
        summed = self.cuts._sum(eqn.invars[0], made)
        if summed is None:
            return None
        (operand,), dims = summed.invars, summed.params["axes"]
        if math.prod(operand.aval.shape[dim] for dim in dims) != value:
            return None
        tags = self.cuts.of(operand)
        return collections.Counter(axis for dim in dims for axis in tags[dim])

    def _of_sources(self, sources: dict | None) -> dict[str, int] | None:
        """The powers of axes in a product of what was asked."""
        found: dict[str, int] = {}
        for source, power in (sources or {}).items():
            if source in self.sizes:
                of: dict | None = {source: 1}
            else:
                of = {} if isinstance(source, str) else self.cuts.sizes_in(source)
            if of is None:
                return None
            for axis, one in of.items():
                found[axis] = found.get(axis, 0) + power * one
        return None if sources is None else {axis: one for axis, one in found.items() if one}

    def _note(self, eqn, place: int, key: tuple, powers: dict | None) -> bool:
        if powers is None or self.known.setdefault(key, powers) != powers:
            return False
        return self._set(eqn, place, key, powers)

    def _set(self, eqn, place: int, key: tuple, powers: dict) -> bool:
        if powers:
            size = math.prod(self.sizes[axis] ** power for axis, power in powers.items())
            self.powers[id(eqn), place] = {"base": key[1] / size, "of": powers}
        return True

    def _other(self, eqn, place: int, key: tuple) -> bool:
        """A literal that is the same as a known one of the same line, a plain number of the
        program, or one that JAX makes."""
        users = [(place_of(one.source_info), key[1]) for one in self.users.get(id(eqn), ())]
        if users and all(where for where, _ in users):
            same = [self.known.get(one, {}) for one in users]
            return all(one == same[0] for one in same) and self._set(eqn, place, key, same[0])
        if key[0] and key in self.known:
            return self._note(eqn, place, key, self.known[key])
        if not key[0] and not _is_written(eqn, abs(key[1])):  # JAX does not say where it is
            squares = any(code.co_name in _SQUARES for code in _codes(eqn))
            return squares or all(value != key[1] for _, value in self.known)
        of_library = any(_makes_numbers(code.co_filename) for code in _codes(eqn))
        return not of_library or not self._may_be_count(eqn, abs(key[1]))

    def _may_be_count(self, eqn, value: float) -> bool:
        """Whether a number that JAX makes may be one of elements, or less by one as a variance has
        it, unless it is written there."""
        extents = [one for one in self.cuts.extents if one > 1]
        if _is_of_mean(eqn):
            counts = eqn.primitive.name != "mul"  # as the derivative of a square does
            return counts and any(not (value + less) % one for one in extents for less in (0, 1))
        if value == 2 or _is_written(eqn, value):  # 2: of a maximum of two that are equal
            return False
        extents += self.sizes.values()
        for one in (value, 1 / value, value**2, value**-2):
            near = round(one)
            if 1 < near < _MOST and math.isclose(one, near, rel_tol=1e-5):
                if any(not near % extent for extent in extents):
                    return True
        return False


def _mapped_bodies(jaxpr):
    """The bodies of shard_maps."""
    for eqn in jaxpr.eqns:
        for body in core.jaxprs_in_params(eqn.params):
            if eqn.primitive.name == "shard_map":
                yield body
            else:
                yield from _mapped_bodies(body)


def _users(jaxpr, var) -> list:
    """The equations that take a value, or what it is in another shape."""
    found = []
    for eqn in jaxpr.eqns:
        if any(one is var for one in eqn.invars):
            reshaped = eqn.primitive.name in ("squeeze", "reshape", "convert_element_type", _SPREAD)
            found += _users(jaxpr, eqn.outvars[0]) if reshaped else [eqn]
    return found


def _scalar(atom):
    if not isinstance(atom, core.Literal) or getattr(atom.val, "shape", ()):
        return None
    value = atom.val.item() if hasattr(atom.val, "item") else atom.val
    return value if type(value) in (int, float) else None


def _codes(eqn):
    """Of the functions of JAX that the program called for an equation."""
    traceback = eqn.source_info.traceback
    for code in traceback.raw_frames()[0] if traceback is not None else ():
        if not is_inside(code.co_filename):
            return
        yield code


def _is_of_mean(eqn) -> bool:
    return any(
        code.co_filename.endswith(_MEANS) and any(one in code.co_name for one in _MEAN_WORDS)
        for code in _codes(eqn)
    )


def _is_written(eqn, value: float) -> bool:
    return any(
        type(one) in (int, float) and abs(one) == value
        for code in _codes(eqn)
        for one in code.co_consts
    )


@functools.cache
def _makes_numbers(file: str) -> bool:
    return any(one in file for one in _LIBRARIES) and not file.endswith(_OPERATORS)


def _axes(eqn) -> tuple[str, ...]:
    names = eqn.params["axis_name"]
    return names if isinstance(names, (tuple, list)) else (names,)


def _fits(shape: tuple, whole: tuple) -> bool:
    return len(shape) == len(whole) and all(one in (1, extent) for one, extent in zip(shape, whole))


def _agreed(tags) -> frozenset[str]:
    """What cuts a dimension that is the same one in several values: what those know that do."""
    known = {one for one in tags if "?" not in one}
    return next(iter(known)) if len(known) == 1 else UNKNOWN
