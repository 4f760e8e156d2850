"""Mistakes that tensor-parallel code has really had, planted in memory for one recording.

Each is a context manager around the step; nothing of the framework is copied or changed on disk.
"""

import contextlib

from ..frameworks.cpu import replaced


def bias_before_reduce(ddp):
    """A row-parallel layer adds its bias to each rank's addend, so that it is summed tp times."""
    from megatron.core.tensor_parallel.layers import RowParallelLinear

    linear, forward = RowParallelLinear._forward_impl, RowParallelLinear.forward

    def linear_with_bias(layer, *args, **kwargs):
        return linear(layer, *args, **kwargs) + layer.bias

    def forward_without_bias(layer, input_):
        output, _ = forward(layer, input_)
        return output, None

    return replaced(RowParallelLinear, _forward_impl=linear_with_bias, forward=forward_without_bias)


@contextlib.contextmanager
def missing_copy(ddp):
    """A column-parallel layer uses its input without the copy whose backward sums gradients."""
    from megatron.core.tensor_parallel import layers

    changed = [
        module
        for name, module in ddp.module.named_modules()
        if name.endswith("mlp.linear_fc1") and module.allreduce_dgrad
    ]
    with replaced(layers, copy_to_tensor_model_parallel_region=lambda input_, group=None: input_):
        for module in changed:
            module.allreduce_dgrad = False
        yield


@contextlib.contextmanager
def missing_norm_flag(ddp):
    """Norm weights lose their `sequence_parallel` mark, so that nobody sums their gradients."""
    for name, parameter in ddp.module.named_parameters():
        if "layernorm" in name:
            parameter.sequence_parallel = False
    yield


BUGS = {
    "bias-before-reduce": bias_before_reduce,
    "missing-copy": missing_copy,
    "missing-norm-flag": missing_norm_flag,
}


def planted(name: str | None, ddp):
    """The context of a bug, or an empty one."""
    if name is None:
        return contextlib.nullcontext()
    if name not in BUGS:
        raise ValueError(f"unknown bug {name}: one of {', '.join(BUGS)}")
    return BUGS[name](ddp)
