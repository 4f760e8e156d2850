"""Bugs that Megatron-Core, or code around it, has had in public, made again in memory.

Each is a step of a model, and a patch that is in force while it runs. A few are still in the
installed version: there the patch is the repair. Nothing of the framework is copied.
"""

import contextlib
import copy
import dataclasses
import functools
import importlib
from collections.abc import Callable

from ..frameworks.cpu import replaced
from ..ranks.groupsizes import axis_size
from . import known, megatron_gpt
from .megatron_model import Config, with_capacity

_ISSUES = "https://github.com/NVIDIA/Megatron-LM"


class Known(known.Known):
    """A bug of Megatron-Core."""

    def recorded(self, patch):
        return megatron_gpt.record(self.config, patch)


_SWAPPED = Config(
    layers=1, sequence_parallel=True, tensor_parallel=2, world=4, swapped_groups=True
)


def loss_over_own_group(ddp, optimizer):
    """The vocabulary-parallel loss runs over the tensor group of the model."""
    from megatron.core.tensor_parallel import cross_entropy

    group = ddp.tp_group
    return replaced(
        cross_entropy,
        get_tensor_model_parallel_group=lambda: group,
        get_tensor_model_parallel_rank=group.rank,
        get_tensor_model_parallel_world_size=group.size,
    )


def _also(first: Callable, second: Callable) -> Callable:
    """Both patches at once."""

    @contextlib.contextmanager
    def both(ddp, optimizer):
        with first(ddp, optimizer), second(ddp, optimizer):
            yield

    return both


def label_smoothing(ddp, optimizer):
    """Switches on label smoothing, which the loss computes from its own part of the words."""
    from megatron.core import tensor_parallel

    loss = functools.partial(tensor_parallel.vocab_parallel_cross_entropy, label_smoothing=0.1)
    return replaced(tensor_parallel, vocab_parallel_cross_entropy=loss)


def embedding_over_default_group(ddp, optimizer):
    """The embedding is scattered over the tensor group of the process."""
    from megatron.core import tensor_parallel

    scatter = tensor_parallel.scatter_to_sequence_parallel_region

    def scattered(input_, group=None):
        return scatter(input_)

    return replaced(tensor_parallel, scatter_to_sequence_parallel_region=scattered)


@contextlib.contextmanager
def offset_is_split(ddp, optimizer):
    """The offsets of the softmax are marked as what they are: one for each head of the rank."""
    from megatron.core.tensor_parallel import set_tensor_model_parallel_attributes

    for name, parameter in ddp.module.named_parameters():
        if name.endswith("softmax_offset"):
            set_tensor_model_parallel_attributes(parameter, True, 0, 1)
    yield


def query_norms_unreduced(ddp, optimizer):
    """The finaliser does not know of the norms of queries and keys, whose ranks have own heads."""
    module = importlib.import_module("megatron.core.distributed.finalize_model_grads")
    finalise = module._allreduce_non_tensor_model_parallel_grads

    def without_norms(model, config, *args):
        config = copy.copy(config)
        config.qk_layernorm = False
        return finalise(model, config, *args)

    return replaced(module, _allreduce_non_tensor_model_parallel_grads=without_norms)


def _summing_gather(module):
    """The gather of sequence parts, with the backward for consumers that differ between ranks."""
    gather = module.gather_from_sequence_parallel_region

    def summing(input_, *args, **kwargs):
        return gather(input_, *args, **(kwargs | {"tensor_parallel_output_grad": True}))

    return replaced(module, gather_from_sequence_parallel_region=summing)


def gather_before_common_loss(ddp, optimizer):
    """The output is gathered with a backward that sums, and every rank computes the same loss."""
    from megatron.core.tensor_parallel import mappings

    return _summing_gather(mappings)


def gather_before_pooler(ddp, optimizer):
    """The pooler, which all tensor ranks compute identically, gathers with a backward that sums."""
    from megatron.core import tensor_parallel

    return _summing_gather(tensor_parallel)


def context_size_in_token_loss(ddp, optimizer):
    """The loss is multiplied by the context-parallel size although it is a sum over tokens."""
    from megatron.core.pipeline_parallel import schedules

    calculate = schedules.forward_step_calc_loss

    def multiplied(*args):
        output, tokens = calculate(*args)
        output *= args[-2]  # cp_group_size
        return output, tokens

    return replaced(schedules, forward_step_calc_loss=multiplied)


@contextlib.contextmanager
def expert_factor_over_tensor_ranks(ddp, optimizer):
    """Gradients of experts are divided by the size of their group, which has tensor ranks in it."""
    from megatron.core import parallel_state

    factor = 1.0 / axis_size(parallel_state.get_expert_model_parallel_group())
    for group in ddp.expert_parallel_bucket_groups:
        for bucket in group.buckets:
            bucket.gradient_scaling_factor = factor
    yield


@contextlib.contextmanager
def expert_factor_twice(ddp, optimizer):
    """The layer of experts divides gradients by the number of expert ranks, as the wrapper does."""
    from megatron.core import parallel_state

    ranks = axis_size(parallel_state.get_expert_model_parallel_group())
    hooks = [
        parameter.register_hook(lambda gradient: gradient / ranks)
        for parameter in ddp.module.parameters()
        if not getattr(parameter, "allreduce", True)
    ]
    yield
    for hook in hooks:
        hook.remove()


def _counted_once(decide: Callable):
    """Another answer to whether all tensor ranks count a gradient in the norm."""
    from megatron.core import tensor_parallel

    known = tensor_parallel.param_is_not_tensor_parallel_duplicate

    def counted(parameter, tp_group=None):
        return decide(parameter, tp_group, known)

    return replaced(tensor_parallel, param_is_not_tensor_parallel_duplicate=counted)


def expert_norm_once(ddp, optimizer):
    """Gradients of experts count in the norm on the first tensor rank only."""

    def decide(parameter, group, known):
        if getattr(parameter, "allreduce", True):
            return known(parameter, group)
        return group.rank() == 0

    return _counted_once(decide)


def every_norm_summed(ddp, optimizer):
    """The squares of all gradients are summed over tensor ranks, of common ones too."""
    return _counted_once(lambda parameter, group, known: True)


@contextlib.contextmanager
def common_weight_marked_split(ddp, optimizer):
    """The router's weight, the same on all tensor ranks, is marked as split."""
    for name, parameter in ddp.module.named_parameters():
        if name.endswith("router.weight"):
            parameter.tensor_model_parallel = True
    yield


def no_finaliser(ddp, optimizer):
    """A training step of its own runs the optimizer without the gradient finaliser."""
    from megatron.core import distributed

    return replaced(distributed, finalize_model_grads=lambda *args, **kwargs: None)


def stages_unreduced(ddp, optimizer):
    """Nobody sums the gradient of word vectors that the first and the last stage share."""
    module = importlib.import_module("megatron.core.distributed.finalize_model_grads")
    return replaced(module, _allreduce_word_embedding_grads=lambda *args, **kwargs: None)


_HEADS = Config(layers=1, sequence_parallel=True, head="hidden")
_POOLER = dataclasses.replace(_HEADS, head="pooler")
_TOKENS = Config(
    layers=1,
    heads=0,
    context_parallel=2,
    tensor_parallel=2,
    settings={"calculate_per_token_loss": True},
)
_STAGES = Config(
    layers=1,
    pipeline_parallel=2,
    tensor_parallel=2,
    model={"share_embeddings_and_output_weights": True},
)
_EXPERTS = with_capacity(layers=1)
_WHOLE_EXPERTS = Config(
    layers=1,
    sequence_parallel=True,
    experts=4,
    expert_parallel=4,
    expert_tensor_parallel=1,
    tensor_parallel=2,
    wrapper={"average_in_collective": True},
)
_NORMS = Config(layers=1, settings={"qk_layernorm": True})

KNOWN = {
    "A01": Known(
        "label smoothing averages over a rank's part of the vocabulary",
        f"{_ISSUES}/issues/7452",
        Config(layers=1),
        label_smoothing,
    ),
    "A02": Known(
        "gathered logits are fed to the vocabulary-parallel loss",
        f"{_ISSUES}/issues/7452",
        Config(layers=1, model={"parallel_output": False}),
    ),
    "A07": Known(
        "the embedding is scattered over the tensor group of the process",
        f"{_ISSUES}/issues/7452",
        _SWAPPED,
        _also(loss_over_own_group, embedding_over_default_group),
        loss_over_own_group,
    ),
    "A08": Known(
        "the offsets of the softmax, one for each head, are not marked as split",
        f"{_ISSUES}/issues/7452",
        Config(layers=1, settings={"softmax_type": "learnable"}),
        None,
        offset_is_split,
    ),
    "A11": Known(
        "the finaliser passes over the norms of queries and keys",
        f"{_ISSUES}/issues/7452",
        _NORMS,
        query_norms_unreduced,
    ),
    "A13": Known(
        "the output is gathered with a summing backward before a loss that all ranks compute",
        f"{_ISSUES}/issues/7452",
        _HEADS,
        gather_before_common_loss,
    ),
    "B03": Known(
        "the pooler gathers with a summing backward",
        f"{_ISSUES}/commit/8474e6e54fcb9dfa37aea039352f9fb485fb6f61",
        _POOLER,
        gather_before_pooler,
    ),
    "B08": Known(
        "a loss that is a sum over tokens is multiplied by the context-parallel size",
        f"{_ISSUES}/commit/5946e24b371d7bce1608a4b31209f682d0483f8b",
        _TOKENS,
        context_size_in_token_loss,
    ),
    "B09": Known(
        "gradients of experts are divided by a group size that has tensor ranks in it",
        f"{_ISSUES}/commit/4f8974a40042091d02b2e9b21afe843acf3f4ff8",
        _WHOLE_EXPERTS,
        expert_factor_over_tensor_ranks,
    ),
    "B10": Known(
        "gradients of experts are divided by the expert-parallel size twice",
        f"{_ISSUES}/commit/c13f08a11b7773289bb1cb8b5eda51d1cb5234fc",
        _EXPERTS,
        expert_factor_twice,
    ),
    "B11": Known(
        "expert weights split over tensor ranks count once in the norm",
        f"{_ISSUES}/pull/5916",
        _EXPERTS,
        expert_norm_once,
    ),
    "B16": Known(
        "nobody sums the gradient of an embedding that two pipeline stages hold",
        f"{_ISSUES}/commit/a387779c44f2188ef5b3c3cb5142511badba7218",
        _STAGES,
        stages_unreduced,
    ),
    "G02": Known(
        "a weight that all tensor ranks hold is marked as split",
        "https://github.com/ROCm/TransformerEngine/pull/715",
        _EXPERTS,
        common_weight_marked_split,
    ),
    "G03": Known(
        "the norm is summed over tensor ranks for split and common gradients together",
        "https://github.com/NVIDIA-NeMo/RL/pull/3788",
        Config(layers=1),
        every_norm_summed,
    ),
    "G04": Known(
        "a training step runs the optimizer without the gradient finaliser",
        "https://github.com/NVIDIA-NeMo/RL/issues/3716",
        _NORMS,
        no_finaliser,
    ),
    "loss group": Known(
        "the vocabulary-parallel loss reduces over the tensor group of the process",
        "",  # not in the collection: the mistake of A07, in the installed version
        _SWAPPED,
        None,
        loss_over_own_group,
    ),
}
