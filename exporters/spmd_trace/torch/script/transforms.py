"""Training by `torch.func`: a gradient that the script asks a transform for, of parameters that it
passes as arguments, is a backward, and parameters that differ in the next call are those of the
next step.

What a transform computes has no graph that a recording could follow. So the outermost `grad` is
computed by autograd: the same operations, the same numbers.
"""

import contextlib
import functools

import torch
from torch.utils import _pytree

from ..frameworks.cpu import replaced
from ..recorder import unrecorded


def running() -> bool:
    """Whether a function of `torch.func` is running: its tensors have no memory of their own."""
    return torch._C._functorch.maybe_current_level() is not None


@contextlib.contextmanager
def by_autograd(asks):
    """Computes gradients by autograd. `asks` is called before each, with the tensors to which it is
    taken, and again, with none, where the function turns out to use other parameters of the script.
    """
    made = torch.func.grad_and_value
    inner: set = set()  # functions whose gradients are a part of what the script trains

    @functools.wraps(made)
    def grad_and_value(func, argnums=0, has_aux=False):
        original = made(func, argnums, has_aux)

        @functools.wraps(func)
        def differentiated(*args, **kwargs):
            given = _given(args, argnums)
            if given is None:
                return original(*args, **kwargs)
            leaves, form = _pytree.tree_flatten(given)
            if any(one.requires_grad for one in leaves):
                return original(*args, **kwargs)
            code = getattr(func, "__code__", getattr(func, "func", func))
            if code not in inner:
                asks(leaves)
            with unrecorded():
                inputs = [one.detach().requires_grad_() for one in leaves]
            with torch.enable_grad():
                result = func(*_with(args, argnums, form.unflatten(inputs)), **kwargs)
            value, aux = result if has_aux else (result, None)
            if not isinstance(value, torch.Tensor) or value.dim() or not value.requires_grad:
                return original(*args, **kwargs)  # which says what is wrong with it
            if _trained(value) - {id(one) for one in inputs}:
                if code not in inner:
                    asks([])
                inner.add(code)
                found = torch.autograd.grad(value, inputs, create_graph=True, allow_unused=True)
            else:
                found = torch.autograd.grad(value, inputs, allow_unused=True)
                detach = torch.Tensor.detach
                value, aux = _pytree.tree_map_only(torch.Tensor, detach, (value, aux))
            found = [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found)]
            return form.unflatten(found), (value, aux) if has_aux else value

        return differentiated

    simple = torch.func.grad

    @functools.wraps(simple)
    def grad(func, argnums=0, has_aux=False):
        original, both = simple(func, argnums, has_aux), grad_and_value(func, argnums, has_aux)

        @functools.wraps(func)
        def differentiated(*args, **kwargs):
            if running():
                return original(*args, **kwargs)
            found, value = both(*args, **kwargs)
            return (found, value[1]) if has_aux else found

        return differentiated

    with replaced(torch.func, grad=grad, grad_and_value=grad_and_value):
        yield


def _trained(value: torch.Tensor) -> set[int]:
    """By identity, the leaves that a value depends on."""
    found, seen, queue = set(), set(), [value.grad_fn]
    while queue:
        node = queue.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        queue += [below for below, _ in node.next_functions]
    return found


def _given(args: tuple, argnums: int | tuple[int, ...]):
    """The arguments to which gradients are asked for; None where autograd does not give them."""
    numbers = (argnums,) if isinstance(argnums, int) else argnums
    if running() or not all(-len(args) <= one < len(args) for one in numbers):
        return None
    given = args[argnums] if isinstance(argnums, int) else tuple(args[one] for one in argnums)
    leaves = _pytree.tree_leaves(given)
    plain = [type(one) in (torch.Tensor, torch.nn.Parameter) for one in leaves]
    return given if leaves and all(plain) and all(map(torch.is_floating_point, leaves)) else None


def _with(args: tuple, argnums: int | tuple[int, ...], given) -> tuple:
    numbers, items = ((argnums,), (given,)) if isinstance(argnums, int) else (argnums, given)
    changed = list(args)
    for number, item in zip(numbers, items):
        changed[number] = item
    return tuple(changed)
