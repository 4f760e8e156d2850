"""The arguments of a call: trees with arrays in them."""

import inspect

import jax
import numpy as np

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def is_array(one) -> bool:
    return isinstance(one, (jax.Array, np.ndarray, np.generic))


def name_of(function, path) -> str:
    """`params['w']` for a leaf of a call's arguments."""
    which, first, *rest = path
    if which.idx == 1:  # by name
        return f"{first.key}{jax.tree_util.keystr(tuple(rest))}"
    try:
        names = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        names = []
    positional = first.idx < len(names) and names[first.idx].kind in _POSITIONAL
    name = names[first.idx].name if positional else f"[{first.idx}]"
    return f"{name}{jax.tree_util.keystr(tuple(rest))}"


def of_arrays(function, args, kwargs) -> tuple:
    """The call as a function of its arrays alone, their places among the leaves, and the leaves."""
    leaves, tree = jax.tree.flatten((args, kwargs))
    places = [place for place, one in enumerate(leaves) if is_array(one)]

    def called(*given):
        filled = list(leaves)
        for place, one in zip(places, given):
            filled[place] = one
        positional, by_name = jax.tree.unflatten(tree, filled)
        return function(*positional, **by_name)

    return called, places, leaves
