"""`flex_attention` on the CPU, where torch has no backward of it.

Its mask becomes a tensor of truth values, for which torch asks the mask's function once for each
pair of positions, and attention is `scaled_dot_product_attention`, as it is recorded elsewhere.
"""

import contextlib
import importlib
import math
import weakref

import torch

from .. import recorder as recording
from .cpu import replaced

_MODULE = "torch.nn.attention.flex_attention"


def _mask(module, made, block_mask, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor | None:
    """Which keys each query sees; None: all. `made`: by block mask, since all layers and what is
    computed again in the backward read the same."""
    if block_mask is None or block_mask.mask_mod is module.noop_mask:
        return None
    batch, heads = block_mask.shape[:2]
    sizes = (batch, heads, query.shape[-2], key.shape[-2])
    known = made.setdefault(block_mask, {})
    if sizes not in known:
        with recording.unrecorded():
            device = str(query.device)
            known[sizes] = module.create_mask(block_mask.mask_mod, *sizes, device=device)
    return known[sizes]


def _sums(query, key, scale: float, mask) -> torch.Tensor:
    """The logarithms of the sums by which the softmax divides."""
    if query.shape[1] != key.shape[1]:
        key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    scores = (query @ key.transpose(-2, -1)).float() * scale
    return (scores if mask is None else scores.masked_fill(~mask, -math.inf)).logsumexp(-1)


def _attention(module):
    made: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()

    def flex_attention(
        query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False,
        return_lse=False, kernel_options=None, *, return_aux=None,
    ):  # fmt: skip
        if score_mod is not None:
            raise NotImplementedError("flex_attention with a score_mod has no form in a trace")
        mask = _mask(module, made, block_mask, query, key)
        words = {"attn_mask": mask, "scale": scale, "enable_gqa": enable_gqa}
        result = torch.nn.functional.scaled_dot_product_attention(query, key, value, **words)
        if not return_lse and return_aux is None:
            return result
        wanted = return_lse or getattr(return_aux, "lse", False)
        scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
        sums = _sums(query, key, scale, mask) if wanted else None
        return result, (sums if return_aux is None else module.AuxOutput(lse=sums))

    return flex_attention


@contextlib.contextmanager
def on_cpu():
    module = importlib.import_module(_MODULE)
    with replaced(module, flex_attention=_attention(module)):
        yield
