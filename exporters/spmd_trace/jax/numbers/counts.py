"""Numbers that ranks count in their own data and divide by, such as those of valid tokens: whether
all ranks have as many, as the arrays of a call have it.

What such a number is made of is computed for each rank, if that is little: a mean of means over
unequal numbers is not the mean over all.
"""

import contextlib
import itertools

import numpy as np
from jax._src import core

from ..specs import axes_of
from ..versions import newly_manual, partitions

_MOST = 64  # equations that a count is made of
_RANKS = 16  # that are compared along the axes of one count
_LARGE = {"dot_general", "conv_general_dilated", "scan", "while", "cond", "shard_map"}
_SAME = {"pvary", "pcast", "pbroadcast"}  # of which each rank keeps what it has


def divisions(closed, values, mesh) -> dict[int, dict]:
    """By the number of an equation that divides by such a count: the axes along which the counts
    are equal, or differ. values: the arrays of the call, in the order of its parameters."""
    found: dict[int, dict] = {}
    held = dict(zip(closed.jaxpr.invars, values)) | dict(zip(closed.jaxpr.constvars, closed.consts))
    for eqn, inner in _regions(closed.jaxpr, held):
        found |= _of_region(eqn, inner, dict(mesh.shape))
    return found


def _regions(jaxpr, held: dict):
    """Each shard_map, and what is known of its operands."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "shard_map":
            yield eqn, _passed(eqn, eqn.params["jaxpr"], held)
        elif eqn.primitive.name in ("pjit", "jit", "closed_call", "core_call"):
            inner = eqn.params["jaxpr"]
            yield from _regions(inner.jaxpr, _passed(eqn, inner.jaxpr, held))


def _passed(eqn, jaxpr, held: dict) -> dict:
    pairs = zip(jaxpr.invars, eqn.invars)
    return {var: held[atom] for var, atom in pairs if isinstance(atom, core.Var) and atom in held}


def _of_region(region, held: dict, sizes: dict[str, int]) -> dict[int, dict]:
    jaxpr, found = region.params["jaxpr"], {}
    specs = dict(zip(jaxpr.invars, map(partitions, region.params["in_specs"])))
    for eqn in jaxpr.eqns:
        count = eqn.invars[1] if eqn.primitive.name == "div" else None
        if not isinstance(count, core.Var) or count.aval.shape:
            continue
        equations, taken = _slice(jaxpr, count)
        if equations is None or not taken <= held.keys():
            continue
        cut = {axis for var in taken for entry in specs[var] for axis in axes_of(entry)}
        axes = [axis for axis in sizes if axis in cut & newly_manual(region) and sizes[axis] > 1]
        if axes and np.prod([sizes[axis] for axis in axes]) <= _RANKS:
            # What JAX does not compute outside of a shard_map is a count that nobody knows.
            with contextlib.suppress(Exception):
                found[id(eqn)] = _compared(equations, count, taken, held, specs, sizes, axes)
    return found


def _slice(jaxpr, wanted) -> tuple[list | None, set]:
    """The equations that make a variable, and the parameters that they take; none: they are many,
    or ask other ranks."""
    needed, equations = {wanted}, []
    for eqn in reversed(jaxpr.eqns):
        if not needed.intersection(eqn.outvars):
            continue
        equations.insert(0, eqn)
        if len(equations) > _MOST or not (eqn.primitive.name in _SAME or _is_own(eqn)):
            return None, set()
        needed |= {atom for atom in eqn.invars if isinstance(atom, core.Var)}
    return equations, needed.intersection(jaxpr.invars)


def _is_own(eqn) -> bool:
    """Whether each rank makes it of what it has, without much work."""
    over = [eqn.params.get(name, ()) for name in ("axes", "axis_name")]
    names = itertools.chain.from_iterable([one] if isinstance(one, str) else one for one in over)
    inner = (one for body in core.jaxprs_in_params(eqn.params) for one in body.eqns)
    asks = any(isinstance(name, str) for name in names)
    return not asks and eqn.primitive.name not in _LARGE and all(map(_is_own, inner))


def _compared(equations, count, taken, held, specs, sizes, axes) -> dict:
    counts = {}
    for place in itertools.product(*(range(sizes[axis]) for axis in axes)):
        rank = dict(zip(axes, place))
        blocks = {var: _block(held[var], specs[var], sizes, rank) for var in taken}
        counts[place] = np.asarray(_made(equations, blocks)[count]).item()
    differ = [
        axis
        for at, axis in enumerate(axes)
        if any(counts[one] != counts[one[:at] + (0,) + one[at + 1 :]] for one in counts)
    ]
    equal = [axis for axis in axes if axis not in differ]
    return {"counts_differ": differ} if differ else {"counts_equal": equal}


def _block(array, spec, sizes: dict[str, int], rank: dict[str, int]):
    """What a rank has of an array; of an axis that is not asked for, what the first one has."""
    array = np.asarray(array)
    for dim, entry in enumerate(spec):
        for axis in axes_of(entry):
            length = array.shape[dim] // sizes[axis]
            array = array.take(range(*(length * (rank.get(axis, 0) + n) for n in (0, 1))), dim)
    return array


def _made(equations, values: dict) -> dict:
    """The variables, with those that the equations make."""
    values = dict(values)
    for eqn in equations:
        taken = list({one: None for one in eqn.invars if isinstance(one, core.Var)})
        given = [values[one] for one in taken]
        if eqn.primitive.name not in _SAME:
            alone = core.Jaxpr([], taken, eqn.outvars, [eqn])
            given = core.eval_jaxpr(alone, [], *given)
        values |= dict(zip(eqn.outvars, given))
    return values
