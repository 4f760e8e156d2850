"""Bugs that torchtitan, or code around it, has had in public, made again in memory.

Each is a step of a model, and a patch that is in force while it is built and runs. Nothing of the
framework is copied.
"""

import spmd_types

from ..frameworks.cpu import replaced
from . import known, torchtitan_models
from .torchtitan_models import Config

_PULLS = "https://github.com/pytorch/torchtitan/pull"


class Known(known.Known):
    """A bug of torchtitan."""

    def recorded(self, patch):
        return torchtitan_models.record(self.config, patch).program


def _policy_loss(kind):
    """The loss is a sum of the framework's own log-probabilities, of logits that all ranks have.

    Their gather gives `kind`. The framework runs it unchecked: spmd_types wants what is added here.
    """
    from torchtitan.components import loss as losses

    class Words:
        """spmd_types, as the framework's module of losses sees it."""

        def __getattr__(self, name):
            return getattr(spmd_types, name)

        def redistribute(self, logits, group, *, src, dst):
            if kind is not spmd_types.R:
                return spmd_types.redistribute(logits, group, src=spmd_types.S(2), dst=dst)
            words = {"src": spmd_types.S(2), "backward_options": {"op_dtype": logits.dtype}}
            return spmd_types.redistribute(logits, group, dst=kind, **words)

    def loss(self, logits, labels, global_valid_tokens=None, **unused):
        if kind is not spmd_types.I:
            labels = spmd_types.convert(labels, "tp", src=spmd_types.I, dst=kind)
        with replaced(losses, spmd=Words()):
            total = -losses.compute_logprobs(logits, labels).sum()
        with spmd_types.no_typecheck():
            return total / global_valid_tokens, {}

    return replaced(losses.CrossEntropyLoss, __call__=loss)


def gathered_for_common_loss():
    """The logits of a loss that every rank computes are gathered with a backward that sums."""
    return _policy_loss(spmd_types.R)


def gathered_once():
    """The same loss as the framework computes it: all ranks together are one consumer."""
    return _policy_loss(spmd_types.I)


def experts_averaged():
    """FSDP divides gradients of experts by the size of their own, smaller data mesh."""
    from torch.distributed.fsdp import FSDPModule

    def of_dense(module, factor):
        for group in module._get_fsdp_state()._fsdp_param_groups:
            types = [str(parameter._spmd_restore_type) for parameter in group.fsdp_params]
            if not any("efsdp" in axes for axes in types):
                group.gradient_divide_factor = factor

    return replaced(FSDPModule, set_gradient_divide_factor=of_dense)


def bias_unsummed():
    """Nobody sums the gradient of a bias of which each tensor rank adds a part."""
    from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam

    sums = FSDPParam._get_grad_inner_tensor

    def without_bias(parameter, gradient):
        is_bias = parameter._param_fqn is not None and parameter._param_fqn.endswith("wo.bias")
        return gradient if is_bias else sums(parameter, gradient)

    return replaced(FSDPParam, _get_grad_inner_tensor=without_bias)


_TENSOR = Config(**torchtitan_models.PARALLEL["llama3"]["tp"] | {"layers": 1})
_EXPERTS = Config("deepseek_v3", **torchtitan_models.PARALLEL["deepseek_v3"]["fsdp_ep"])
_BIASED = Config(
    "gpt_oss",
    data_parallel=2,
    tensor_parallel=2,
    expert_parallel=4,
    sequence_parallel=True,
    layers=1,
)

KNOWN = {
    "C05": Known(
        "logits are gathered with a summing backward for a loss that all ranks compute",
        f"{_PULLS}/3822",
        _TENSOR,
        gathered_for_common_loss,
        gathered_once,
    ),
    "C08": Known(
        "a bias of which each tensor rank adds a part gets a gradient that nobody sums",
        f"{_PULLS}/4332",
        _BIASED,
        bias_unsummed,
    ),
    "C11": Known(
        "gradients of experts are averaged over their own data mesh only",
        f"{_PULLS}/1551",
        _EXPERTS,
        experts_averaged,
    ),
}
