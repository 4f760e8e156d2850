"""Attention of `context_parallel` on the CPU, whose fused kernel its dispatcher does not know.

Ring attention calls a kernel for each block of keys and merges what the kernels give by their
logarithmic sums. The kernel of the CPU gives these, too: it takes the place of those for GPUs, so
that a script runs, and is recorded, as it would be there.
"""

import contextlib
import functools
import importlib
import inspect

import torch
from torch.distributed.tensor import DTensor

from .cpu import replaced

_aten = torch.ops.aten
_FORWARD = _aten._scaled_dot_product_flash_attention_for_cpu.default
_BACKWARD = _aten._scaled_dot_product_flash_attention_for_cpu_backward.default
_PLACES = ("_context_parallel._attention", "_attention")  # by version of torch
_SEQUENCE = 2  # the dimension that is cut


def _module():
    """The module of torch that has the ring; None where this version has none."""
    for name in _PLACES:
        with contextlib.suppress(ImportError):
            module = importlib.import_module(f"torch.distributed.tensor.experimental.{name}")
            if hasattr(module, "_templated_ring_attention") and _table(module):
                return module
    return None


def _table(ring) -> str | None:
    """The name of what the dispatcher knows, by operation."""
    return next((name for name in ("custom_ops", "customized_ops") if hasattr(ring, name)), None)


def _forward(ring, group, query, key, value, dropout_p=0.0, is_causal=False, **more):
    words = {"dropout_p": dropout_p, "scale": more.get("scale")}
    return ring._templated_ring_attention(
        group, _SEQUENCE, _FORWARD, query=query, key=key, value=value, is_causal=is_causal, **words
    )[:2]


def _backward(ring, group, grad_out, query, key, value, out, sums, dropout_p, is_causal, **more):
    # The kernel is called without the name that it has for the sums.
    def kernel(grad_out, query, key, value, out, logsumexp, is_causal, dropout_p, scale):
        operands = grad_out, query, key, value, out, logsumexp
        return _BACKWARD(*operands, dropout_p, is_causal, scale=scale)

    words = {"dropout_p": dropout_p, "scale": more.get("scale")}
    words |= {"query": query, "key": key, "value": value, "out": out, "logsumexp": sums}
    words |= {"grad_out": grad_out, "grad_out_name": "grad_out", "is_causal": is_causal}
    return ring._templated_ring_attention_backward(group, _SEQUENCE, kernel, **words)


def _handler(ring, run, op, args, kwargs):
    """What is called with DTensors, on the tensors inside; results are cut as the query is."""
    (like, *_) = (one for one in args if isinstance(one, DTensor))
    local = [one._local_tensor if isinstance(one, DTensor) else one for one in args]
    mesh = like.device_mesh
    by_mesh = "mesh" in inspect.signature(ring._templated_ring_attention).parameters  # torch 2.6
    made = run(ring, mesh if by_mesh else mesh.get_group(), *local, **kwargs)
    placed = mesh, like.placements
    return tuple(DTensor.from_local(one, *placed, run_check=False) for one in made)


@contextlib.contextmanager
def on_cpu():
    """Lets `context_parallel` run on the CPU, while the context lasts."""
    if (ring := _module()) is None:
        yield
        return
    ours = {_FORWARD: functools.partial(_handler, ring, _forward)}
    ours[_BACKWARD] = functools.partial(_handler, ring, _backward)
    with replaced(ring, **{_table(ring): getattr(ring, _table(ring)) | ours}):
        yield
