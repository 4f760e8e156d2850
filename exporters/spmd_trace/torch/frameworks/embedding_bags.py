"""`embedding_bag` of bags that are the rows of a matrix: lookups and their sums or means.

The kernel takes them as one list and where each bag begins in it, which says nothing of rows any
more. What it computes of them is the same.
"""

import contextlib
import functools

import torch
from torch.nn import functional

from .cpu import replaced


def _bags(original):
    @functools.wraps(original)
    def embedding_bag(input, weight, *args, **kwargs):  # noqa: A002, the name that callers use
        names = ("offsets", "max_norm", "norm_type", "scale_grad_by_freq", "mode", "sparse")
        names += ("per_sample_weights", "include_last_offset", "padding_idx")
        given = dict(zip(names, args)) | kwargs
        plain = ("offsets", "max_norm", "per_sample_weights", "padding_idx")
        mode = given.get("mode", "mean")
        if (
            not isinstance(input, torch.Tensor)
            or input.dim() != 2
            or any(given.get(name) is not None for name in plain)
            or given.get("sparse")
            or mode not in ("sum", "mean")
        ):
            return original(input, weight, *args, **kwargs)
        often = bool(given.get("scale_grad_by_freq"))
        rows = functional.embedding(input, weight, scale_grad_by_freq=often)
        return rows.sum(1) if mode == "sum" else rows.mean(1)

    return embedding_bag


@contextlib.contextmanager
def on_cpu():
    with replaced(functional, embedding_bag=_bags(functional.embedding_bag)):
        yield
