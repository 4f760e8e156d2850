"""The bias of torchtitan's row-wise layers: each tensor rank adds a part of it to its own addend.

The layer divides the bias by the number of tensor ranks, which is a size and not a number, and
adds a value that is equal on all ranks to one that is not; the sum of both over the ranks is meant.
spmd_types has no word for that inside `linear`, as a comment there says. Here the sum is apart.
"""

import contextlib
import types

import spmd_types
import torch.nn.functional

from ..ranks import groupsizes
from .cpu import replaced


@contextlib.contextmanager
def stated():
    """Layers built meanwhile say what they do with their bias, while the context lasts."""
    from torchtitan.models.common import linear

    layer = linear.ScaledBiasRowwiseLinear
    parallelize = layer.parallelize
    spmd_types.register_local_autograd_function(groupsizes.Scale)

    def parallelize_with_size(self, parallel_dims):
        parallelize(self, parallel_dims)
        if parallel_dims.tp_enabled:
            self.tp_degree = groupsizes.axis_size(parallel_dims.get_mesh("tp").get_group())

    def apart(values, weight, bias=None):
        plain = torch.nn.functional.linear
        if bias is None or not spmd_types.is_type_checking():
            return plain(values, weight, bias)
        part = spmd_types.reinterpret(
            bias, "tp", src=spmd_types.R, dst=spmd_types.P, expert_mode=True
        )
        product = plain(values, weight)
        return spmd_types.reinterpret(product, "tp", src=spmd_types.V, dst=spmd_types.P) + part

    with (
        groupsizes.followed(),
        replaced(layer, parallelize=parallelize_with_size),
        replaced(linear, F=types.SimpleNamespace(linear=apart)),
    ):
        yield
