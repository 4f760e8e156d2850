"""Mistakes in torchtitan's step that spmd_types cannot see, planted in memory for one recording."""

import contextlib

from ..frameworks.cpu import replaced


def unsummed_norms():
    """Nobody sums the gradients of norm weights over tp, as where FSDP2 is not used.

    Under sequence parallelism each tensor rank has the gradient of its own tokens. spmd_types types
    such a weight R on tp, which says that its gradient is partial, and checks no backward.
    """
    from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam

    return replaced(FSDPParam, _get_grad_inner_tensor=lambda parameter, gradient: gradient)


BUGS = {"unsummed-norms": unsummed_norms}


def planted(name):
    """A context in which a mistake is made, known by name or as a function; none for None."""
    if name is None:
        return contextlib.nullcontext()
    if callable(name):
        return name()
    if name not in BUGS:
        raise ValueError(f"unknown bug {name}: one of {', '.join(BUGS)}")
    return BUGS[name]()
