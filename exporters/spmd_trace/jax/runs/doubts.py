"""When a program of one device may mean something else than one of all: ranks that draw random
numbers of their own, one element for each rank, numbers that may be a number of ranks.
"""

import math

import jax.numpy as jnp
import numpy as np
from jax._src import core

from ..specs import axes_of
from ..versions import partitions


def bodies(jaxpr, name: str):
    """The bodies of operations of this name, wherever they are."""
    for eqn in jaxpr.eqns:
        for body in core.jaxprs_in_params(eqn.params):
            if eqn.primitive.name == name:
                yield eqn, body
            yield from bodies(body, name)


def _drawn(jaxpr, ranked: list[bool], found: list) -> list[bool]:
    """Notes what is drawn at random, and whether it depends on the place of the rank; which results
    do."""
    known = dict(zip(jaxpr.invars, ranked))
    for eqn in jaxpr.eqns:
        ins = [isinstance(one, core.Var) and known.get(one, False) for one in eqn.invars]
        own = any(ins) or eqn.primitive.name == "axis_index"
        if eqn.primitive.name in ("random_bits", "rng_bit_generator"):
            shape = eqn.params["shape"]
            found.append((tuple(shape), own))
        for body in core.jaxprs_in_params(eqn.params):
            # Of loops the carry may be of the rank in a later turn only.
            own |= any(_drawn(body, [own] * len(body.invars), found))
        known |= dict.fromkeys(eqn.outvars, own)
    return [isinstance(one, core.Var) and known.get(one, False) for one in jaxpr.outvars]


def draws(jaxpr) -> tuple[list[tuple], bool]:
    """What shard_maps draw at random: the shapes of each, and whether any is of the rank."""
    found: list = []
    for _, body in bodies(jaxpr, "shard_map"):
        _drawn(body, [False] * len(body.invars), found)
    return sorted(shape for shape, _ in found), any(own for _, own in found)


def counts_rows(jaxpr) -> bool:
    """Whether a shard_map sends rows to other ranks as it has ordered or counted them: to experts
    that take so many rows of each rank, and no more."""
    names = {name for _, body in bodies(jaxpr, "shard_map") for name in _primitives(body)}
    return "all_to_all" in names and not names.isdisjoint({"cumsum", "sort", "top_k", "argmax"})


def _primitives(jaxpr):
    for eqn in jaxpr.eqns:
        yield eqn.primitive.name
        for body in core.jaxprs_in_params(eqn.params):
            yield from _primitives(body)


def unused_blocks(jaxpr) -> bool:
    """Whether a shard_map with one rank takes one element of a dimension that is cut, and no other:
    `w[0]` of the block of a rank."""
    for eqn, body in bodies(jaxpr, "shard_map"):
        for var, spec in zip(body.invars, eqn.params["in_specs"]):
            for dim, entry in enumerate(partitions(spec)):
                if axes_of(entry) and var.aval.shape[dim] > 1:
                    reach = _reach(body, var, dim)
                    if reach is not None and reach < var.aval.shape[dim]:
                        return True
    return False


def _reach(jaxpr, var, dim: int) -> int | None:
    """How many elements of a dimension slices take, where nothing else takes the value."""
    most = 0
    if any(one is var for one in jaxpr.outvars):
        return None
    for eqn in jaxpr.eqns:
        for place, one in enumerate(eqn.invars):
            if one is not var:
                continue
            inner = list(core.jaxprs_in_params(eqn.params))
            if eqn.primitive.name == "slice":
                reach = eqn.params["limit_indices"][dim]
            elif eqn.primitive.name == "dynamic_slice" and place == 0:
                start = eqn.invars[1 + dim]
                if not isinstance(start, core.Literal):
                    return None
                reach = int(start.val) + eqn.params["slice_sizes"][dim]
            elif (
                len(inner) == 1
                and len(inner[0].invars) == len(eqn.invars)
                and (eqn.primitive.name in ("jit", "pjit", "checkpoint", "remat2", "closed_call"))
            ):
                reach = _reach(inner[0], inner[0].invars[place], dim)
            else:
                return None
            if reach is None:
                return None
            most = max(most, reach)
    return most or None


def with_ones(closed, wanted) -> core.ClosedJaxpr:
    """The same program with 1 in place of some numbers that are multiplied or divided by."""

    def of(jaxpr):
        eqns = []
        for eqn in jaxpr.eqns:
            params = {key: _mapped(value, of) for key, value in eqn.params.items()}
            invars = eqn.invars
            if eqn.primitive.name in ("mul", "div"):
                invars = [_one(atom) if wanted(atom) else atom for atom in invars]
            eqns.append(eqn.replace(params=params, invars=invars))
        return jaxpr.replace(eqns=eqns)

    return core.ClosedJaxpr(of(closed.jaxpr), closed.consts)


def _mapped(value, of):
    if isinstance(value, core.ClosedJaxpr):
        return core.ClosedJaxpr(of(value.jaxpr), value.consts)
    if isinstance(value, core.Jaxpr):
        return of(value)
    if type(value) is tuple:  # and not one with names, which have no jaxprs in them
        return tuple(_mapped(one, of) for one in value)
    return value


def _one(atom):
    return core.Literal(np.ones((), atom.aval.dtype), atom.aval)


def is_size(atom, sizes) -> bool:
    if not isinstance(atom, core.Literal) or np.shape(atom.val):
        return False
    if not jnp.issubdtype(atom.aval.dtype, jnp.inexact):
        return False
    value = float(np.real(atom.val))
    return any(math.isclose(value, one, rel_tol=1e-6) for one in sizes)


def products(sizes: dict[str, int]) -> set[float]:
    """The sizes of axes and of grids of them, and one over these."""
    found = {1.0}
    for size in sizes.values():
        found |= {one * size for one in found}
    found -= {1.0}
    return found | {1 / one for one in found}


def factors(jaxpr):
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in ("mul", "div"):
            yield from (one for one in eqn.invars if isinstance(one, core.Literal))
        for body in core.jaxprs_in_params(eqn.params):
            yield from factors(body)
