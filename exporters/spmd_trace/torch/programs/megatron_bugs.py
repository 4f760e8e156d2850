"""Mistakes that tensor-parallel code has really had, planted in memory for one recording.

Each is a context manager around the step; nothing of the framework is copied or changed on disk.
"""

import contextlib

from ..frameworks.cpu import replaced


def bias_before_reduce(ddp, optimizer):
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
def missing_copy(ddp, optimizer):
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
def missing_norm_flag(ddp, optimizer):
    """Norm weights lose their `sequence_parallel` mark, so that nobody sums their gradients."""
    for name, parameter in ddp.module.named_parameters():
        if "layernorm" in name:
            parameter.sequence_parallel = False
    yield


@contextlib.contextmanager
def expert_gather(ddp, optimizer):
    """Experts gather their tokens with a backward that takes a slice and sums nothing."""
    from megatron.core.transformer.moe import token_dispatcher

    gather = token_dispatcher.gather_from_sequence_parallel_region

    def gather_whole(input_, group=None, output_split_sizes=None):
        if not input_.is_floating_point():  # the counts of tokens
            return gather(input_, group=group)
        return gather(input_, tensor_parallel_output_grad=False, group=group)

    with replaced(token_dispatcher, gather_from_sequence_parallel_region=gather_whole):
        yield


@contextlib.contextmanager
def expert_sync(ddp, optimizer):
    """Gradients of experts are summed over all data-parallel ranks, like those of other weights."""
    (dense,) = ddp.bucket_groups
    for experts in ddp.expert_parallel_bucket_groups:
        experts.data_parallel_group = dense.data_parallel_group
    yield


@contextlib.contextmanager
def expert_norm(ddp, optimizer):
    """The norm of expert gradients is summed over tensor ranks only, like that of other weights."""
    dense = optimizer.chained_optimizers[0].get_grad_stats_parallel_group()
    for chained in optimizer.chained_optimizers:
        chained.grad_stats_parallel_group = dense
    yield


@contextlib.contextmanager
def router_flag(ddp, optimizer):
    """The router's weight loses its `sequence_parallel` mark: nobody sums its gradient over tp."""
    for name, parameter in ddp.module.named_parameters():
        if name.endswith("router.weight"):
            parameter.sequence_parallel = False
    yield


BUGS = {
    "bias-before-reduce": bias_before_reduce,
    "missing-copy": missing_copy,
    "missing-norm-flag": missing_norm_flag,
    "expert-gather": expert_gather,
    "expert-sync": expert_sync,
    "expert-norm": expert_norm,
    "router-flag": router_flag,
}


def planted(name, ddp, optimizer):
    """The context of a bug, known by name or as a function, or an empty one."""
    if name is None:
        return contextlib.nullcontext()
    if callable(name):
        return name(ddp, optimizer)
    if name not in BUGS:
        raise ValueError(f"unknown bug {name}: one of {', '.join(BUGS)}")
    return BUGS[name](ddp, optimizer)
