"""Which numbers of a jaxpr are sizes, where it cannot be traced again: numbers of elements in
means, sizes beside sums.

A mean over the elements of one rank divides by their number, which is that of all elements over
the sizes of the axes that cut them. Which these are follows from the specs of the shard_map,
dimension by dimension.
"""

import math

from jax._src import core

from ..locations import phase_of
from ..specs import axes_of
from ..versions import partitions

Tags = list[frozenset[str]]  # of each dimension, the axes that cut it

_BODIES = {
    "jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr", "checkpoint": "jaxpr",
    "remat2": "jaxpr",
}  # fmt: skip
_PASSES = {"convert_element_type", "neg", "reshape", "squeeze", "copy", "broadcast_in_dim", "mul"}


def _rank(atom) -> int:
    return len(getattr(atom.aval, "shape", ()))


def written(eqn, position: int, made: dict):
    """Where the number that stands there is written, by equation and position, and the number; 0:
    it is none, or none that could be a size. made: by variable, the equation that makes it."""
    atom = eqn.invars[position]
    if isinstance(atom, core.Var) and (spread := made.get(atom)) is not None:
        if spread.primitive.name == "broadcast_in_dim" and isinstance(
            spread.invars[0], core.Literal
        ):
            eqn, position, atom = spread, 0, spread.invars[0]
    if isinstance(atom, core.Literal) and not getattr(atom.val, "shape", ()):
        value = atom.val.item() if hasattr(atom.val, "item") else atom.val
        if isinstance(value, float) and value > 1 and value == round(value):
            return (id(eqn), position), value
    return None, 0.0


class Means:
    """Notes sizes in `powers`, as `Sizes` has them: of literals, by equation and position."""

    def __init__(self, sizes: dict[str, int], powers: dict):
        self.sizes, self.powers = sizes, powers
        # Of elements that are averaged, by their number and the shape of the mean: what cuts them.
        self.counts: dict[tuple, list[frozenset[str]]] = {}
        self.known: dict[float, list[dict[str, int]]] = {}  # of numbers: the powers that they have
        self.handed_on: list[tuple[tuple[int, int], float]] = []
        self.divisions: list[tuple] = []  # that are none of these

    def read(self, jaxpr) -> None:
        self._outside(jaxpr)
        for place, number, shape, is_backward in self.divisions:
            cut = self.counts.get((number, shape), [])
            if len(set(cut)) == 1:
                self._note(place, number, dict.fromkeys(cut[0], -1))
            elif not cut and is_backward:  # of one that is known
                self._as_known(place, number)
        for place, number in self.handed_on:
            self._as_known(place, number)

    def _as_known(self, place, number: float) -> None:
        found = self.known.get(number, [])
        if found and all(one == found[0] for one in found):
            self._note(place, number, found[0])

    def _outside(self, jaxpr) -> None:
        left: dict = {}  # what shard_maps return: by which spec, and what cuts it inside
        for eqn in jaxpr.eqns:
            if eqn.primitive.name != "shard_map":
                for body in core.jaxprs_in_params(eqn.params):
                    self._outside(body)
                continue
            body, tags = eqn.params["jaxpr"], []
            for atom, spec, var in zip(eqn.invars, eqn.params["in_specs"], body.invars):
                known = left.get(atom) if isinstance(atom, core.Var) else None
                same = known is not None and known[0] == spec
                tags.append(known[1] if same else self._of_spec(spec, _rank(var)))
            results = self._body(body, tags)
            left |= dict(zip(eqn.outvars, zip(eqn.params["out_specs"], results)))

    def _of_spec(self, spec, rank: int) -> Tags:
        entries = [*partitions(spec), *[None] * rank][:rank]
        return [frozenset(axis for axis in axes_of(one) if self.sizes[axis] > 1) for one in entries]

    def _body(self, jaxpr, ins: list[Tags]) -> list[Tags]:
        tags: dict = dict(zip(jaxpr.invars, ins))
        made: dict = {}
        used: dict = {}

        def of(atom) -> Tags:
            return (
                tags.get(atom)
                if isinstance(atom, core.Var) and atom in tags
                else [frozenset()] * _rank(atom)
            )

        for eqn in jaxpr.eqns:
            for atom in eqn.invars:
                if isinstance(atom, core.Var):
                    used.setdefault(atom, eqn)
            results = self._equation(eqn, [of(atom) for atom in eqn.invars])
            for var, result in zip(eqn.outvars, results):
                made[var], tags[var] = eqn, result
        for eqn in jaxpr.eqns:
            if eqn.primitive.name == "div":
                self._division(eqn, made, used, of)
            elif eqn.primitive.name == "broadcast_in_dim" and eqn.outvars[0].aval.shape == (1,):
                self._handed_on(eqn)
        return [of(atom) for atom in jaxpr.outvars]

    def _handed_on(self, eqn) -> None:
        """A number that the forward leaves for the backward has a dimension."""
        place, number = written(eqn, 0, {})
        if place is not None:
            self.handed_on.append((place, number))

    # --- numbers ----------------------------------------------------------------------------------

    def _note(self, place, number: float, of: dict[str, int]) -> None:
        rest = number / math.prod(self.sizes[axis] ** power for axis, power in of.items())
        self.known.setdefault(number, []).append(of)
        if of and place not in self.powers:
            self.powers[place] = {"base": rest, "of": of}

    def _division(self, eqn, made: dict, used: dict, of) -> None:
        place, number = written(eqn, 1, made)
        if place is None or place in self.powers:
            return
        shape = eqn.outvars[0].aval.shape
        summed = self._sum(eqn.invars[0], made)
        if summed is not None:
            (operand,), dims = summed.invars, summed.params["axes"]
            if math.prod(operand.aval.shape[dim] for dim in dims) == number:
                cut = frozenset().union(*(of(operand)[dim] for dim in dims))
                self.counts.setdefault((number, shape), []).append(cut)
                self._note(place, number, dict.fromkeys(cut, -1))
                return
        if axes := self._beside(eqn, made, used, number):
            self._note(place, number, dict.fromkeys(axes, 1))
        else:
            is_backward = phase_of(str(eqn.source_info.name_stack)) == "bwd"
            self.divisions.append((place, number, shape, is_backward))

    def _sum(self, atom, made: dict):
        while isinstance(atom, core.Var) and (eqn := made.get(atom)) is not None:
            if eqn.primitive.name == "reduce_sum":
                return eqn
            numbers = [isinstance(one, core.Literal) for one in eqn.invars]
            one_value = numbers.count(False) == 1
            if eqn.primitive.name not in _PASSES or not one_value:
                return None
            atom = eqn.invars[numbers.index(False)]
        return None

    def _beside(self, eqn, made: dict, used: dict, number: float) -> tuple[str, ...]:
        """The axes of a sum over so many ranks right before the division, or right after it."""
        before = made.get(eqn.invars[0]) if isinstance(eqn.invars[0], core.Var) else None
        for other in (before, used.get(eqn.outvars[0])):
            if other is not None and other.primitive.name == "psum":
                axes = other.params["axes"]
                if math.prod(self.sizes.get(axis, 1) for axis in axes) == number:
                    return axes
        return ()

    # --- dimensions -------------------------------------------------------------------------------

    def _equation(self, eqn, ins: list[Tags]) -> list[Tags]:
        name, params = eqn.primitive.name, eqn.params
        if name in _BODIES:
            body = params[_BODIES[name]]
            return self._body(getattr(body, "jaxpr", body), ins)
        if name == "scan":
            return self._scan(eqn, ins)
        if name == "while":
            of_test, of_step = params["cond_nconsts"], params["body_nconsts"]
            carried = ins[of_test + of_step :]
            left = self._body(
                params["body_jaxpr"].jaxpr, [*ins[of_test : of_test + of_step], *carried]
            )
            return [_both(one, other) for one, other in zip(carried, left)]
        if any(True for _ in core.jaxprs_in_params(params)):
            return [[frozenset()] * _rank(var) for var in eqn.outvars]
        rule = getattr(self, f"_of_{name}", None)
        if rule:
            return [rule(eqn, ins)]
        return [self._of_equal_rank(var, eqn.invars, ins) for var in eqn.outvars]

    def _scan(self, eqn, ins: list[Tags]) -> list[Tags]:
        params = eqn.params
        fixed = params["num_consts"] + params["num_carry"]
        given = [*ins[:fixed], *(one[1:] for one in ins[fixed:])]
        left = self._body(params["jaxpr"].jaxpr, given)
        carry = params["num_carry"]
        return [*left[:carry], *([frozenset(), *one] for one in left[carry:])]

    @staticmethod
    def _of_equal_rank(var, atoms, ins: list[Tags]) -> Tags:
        """What operands of the same rank have, where the extent is the same."""
        shape = getattr(var.aval, "shape", ())
        found = [frozenset() for _ in shape]
        for atom, tags in zip(atoms, ins):
            if _rank(atom) == len(shape):
                for dim, extent in enumerate(atom.aval.shape):
                    if extent == shape[dim]:
                        found[dim] |= tags[dim]
        return found

    def _of_broadcast_in_dim(self, eqn, ins):
        found = [frozenset() for _ in eqn.outvars[0].aval.shape]
        for dim, place in enumerate(eqn.params["broadcast_dimensions"]):
            if eqn.invars[0].aval.shape[dim] == eqn.outvars[0].aval.shape[place]:
                found[place] = ins[0][dim]
        return found

    def _of_transpose(self, eqn, ins):
        return [ins[0][dim] for dim in eqn.params["permutation"]]

    def _of_squeeze(self, eqn, ins):
        return [one for dim, one in enumerate(ins[0]) if dim not in eqn.params["dimensions"]]

    def _of_reshape(self, eqn, ins):
        """A cut goes with the outermost dimension of what is split or joined."""
        old, new = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
        found, tags = [frozenset() for _ in new], list(ins[0])
        place = dim = 0
        while place < len(new) and dim < len(old):
            first, have, want = place, old[dim], new[place]
            merged = tags[dim]
            while have != want:
                if have < want and dim + 1 < len(old):
                    dim += 1
                    have, merged = have * old[dim], merged | tags[dim]
                elif place + 1 < len(new):
                    place += 1
                    want *= new[place]
                else:
                    break
            found[first] |= merged
            place, dim = place + 1, dim + 1
        return found

    def _reduced(self, eqn, ins):
        return [one for dim, one in enumerate(ins[0]) if dim not in eqn.params["axes"]]

    _of_reduce_sum = _of_reduce_max = _of_reduce_min = _of_reduce_prod = _reduced
    _of_reduce_and = _of_reduce_or = _of_argmax = _of_argmin = _reduced

    def _of_dot_general(self, eqn, ins):
        (sum_x, sum_y), (batch_x, batch_y) = eqn.params["dimension_numbers"]
        sides = ((ins[0], {*sum_x, *batch_x}), (ins[1], {*sum_y, *batch_y}))
        free = [one for tags, gone in sides for dim, one in enumerate(tags) if dim not in gone]
        return [ins[0][dim] | ins[1][other] for dim, other in zip(batch_x, batch_y)] + free

    def _of_gather(self, eqn, ins):
        """Rows by the indices of what is cut, or by the rows of the table where each takes its
        own."""
        numbers, shape = eqn.params["dimension_numbers"], eqn.outvars[0].aval.shape
        batch = iter(ins[1][:-1])
        rows = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
        own = {eqn.invars[0].aval.shape[dim]: ins[0][dim] for dim in rows}
        found = []
        for dim, extent in enumerate(shape):
            by_index = frozenset() if dim in numbers.offset_dims else next(batch, frozenset())
            found.append(
                by_index
                or (frozenset() if dim in numbers.offset_dims else own.get(extent, frozenset()))
            )
        return found

    def _of_all_gather(self, eqn, ins):
        axes, dim = frozenset(_names(eqn)), eqn.params["all_gather_dimension"]
        if not eqn.params["tiled"]:
            return [*ins[0][:dim], frozenset(), *ins[0][dim:]]
        return [one - axes if place == dim else one for place, one in enumerate(ins[0])]

    def _of_reduce_scatter(self, eqn, ins):
        axes, dim = frozenset(_names(eqn)), eqn.params["scatter_dimension"]
        if not eqn.params["tiled"]:
            return [*ins[0][:dim], *ins[0][dim + 1 :]]
        return [one | axes if place == dim else one for place, one in enumerate(ins[0])]

    def _of_all_to_all(self, eqn, ins):
        axes, found = frozenset(_names(eqn)), list(ins[0])
        found[eqn.params["concat_axis"]] -= axes
        found[eqn.params["split_axis"]] |= axes
        return found


def _both(one: Tags, other: Tags) -> Tags:
    return [a | b for a, b in zip(one, other)]


def _names(eqn) -> tuple[str, ...]:
    names = eqn.params["axis_name"]
    return names if isinstance(names, (tuple, list)) else (names,)
