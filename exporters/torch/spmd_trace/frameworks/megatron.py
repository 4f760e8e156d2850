"""Megatron-Core on the CPU, and its parameters in terms of types.

A parameter's type follows from the attributes that the framework itself uses to synchronise
gradients; its gradient buffers are packed, and some of its norms count on one rank only.
"""

import contextlib
import sys
import types

import torch

from ..hostnumbers import HostSizes
from ..mesh import Axis, Mesh
from ..recorder import Recorder
from .cpu import replaced

_ATTRIBUTES = (
    "tensor_model_parallel",
    "partition_dim",
    "sequence_parallel",
    "average_gradients_across_tp_domain",
    "allreduce",
)


def install_norm_standin() -> None:
    """Provides the fused layer norm of Apex, which sequence parallelism asks for by name."""
    name = "apex.normalization.fused_layer_norm"
    if name in sys.modules:
        return

    class FusedLayerNormAffineFunction:
        @staticmethod
        def forward(ctx, input, weight, bias, normalized_shape, eps):
            raise NotImplementedError("called through apply only")

        @staticmethod
        def apply(input, weight, bias, normalized_shape, eps):
            return torch.nn.functional.layer_norm(input, normalized_shape, weight, bias, eps)

    for part in ("apex", "apex.normalization", name):
        sys.modules[part] = types.ModuleType(part)
    sys.modules[name].FusedLayerNormAffineFunction = FusedLayerNormAffineFunction


def _l2_norm(only_first_rank):
    """The fused norm over a list of tensors; duplicates count on the first tensor rank only."""

    def norm_of(tensor: torch.Tensor) -> torch.Tensor:
        norm = torch.linalg.vector_norm(tensor)
        return only_first_rank(tensor, norm)

    def l2_norm(chunk_size, overflow, tensor_lists, per_tensor, *args):
        norms = torch.stack([norm_of(tensor) for tensor in tensor_lists[0]])
        return torch.linalg.vector_norm(norms).reshape(1), None

    return l2_norm


@contextlib.contextmanager
def cpu_standins():
    """Replaces what Megatron-Core takes from CUDA extensions, and its random states."""
    from megatron.core.optimizer import clip_grads
    from megatron.core.tensor_parallel import random
    from megatron.core.transformer.moe import moe_utils, token_dispatcher

    states = {
        "_get_cuda_rng_state": lambda *args, **kwargs: torch.get_rng_state(),
        "_set_cuda_rng_state": lambda state, *args, **kwargs: torch.set_rng_state(state),
    }
    plain = _l2_norm(lambda tensor, norm: norm)

    def to_host(tensor, as_numpy: bool = False, record_stream: bool = False):
        return HostSizes(tensor) if as_numpy and torch.is_tensor(tensor) else tensor

    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(random, **states))
        stack.enter_context(replaced(clip_grads, l2_norm_impl=plain))
        stack.enter_context(replaced(moe_utils, te_general_gemm=None))
        stack.enter_context(replaced(token_dispatcher, maybe_move_tensor_to_cpu=to_host))
        yield


def forget_last_step() -> None:
    """Drops what a step leaves in globals: gathered activations, auxiliary losses, their scale."""
    from megatron.core import parallel_state
    from megatron.core.transformer.moe import moe_utils

    parallel_state.get_global_memory_buffer().buffer.clear()
    moe_utils.get_moe_layer_wise_logging_tracker().clear()
    moe_utils.MoEAuxLossAutoScaler.main_loss_backward_scale = None


@contextlib.contextmanager
def recorded_clipping(recorder: Recorder, ddp):
    """Says in the trace which gradient norms Megatron takes on the first tensor rank only."""
    from megatron.core.optimizer import clip_grads, optimizer

    parameters = ddp.module.parameters()
    duplicates = {
        parameter.main_grad.data_ptr()
        for parameter in parameters
        if not getattr(parameter, "tensor_model_parallel", False)
    }

    def only_first_rank(tensor, norm):
        duplicate = tensor.data_ptr() in duplicates
        return recorder.only_at(norm, "tp", 0) if duplicate else norm

    # Several optimizers take the root of the sum of their squared norms, on the host.
    root = types.SimpleNamespace(sqrt=lambda number: number**0.5)
    with replaced(clip_grads, l2_norm_impl=_l2_norm(only_first_rank)):
        with replaced(optimizer, math=root):
            yield


@contextlib.contextmanager
def hidden_random_states(recorder: Recorder):
    """Leaves out the exchange of generator states around a region with its own random numbers."""
    from megatron.core.tensor_parallel.random import CudaRNGStatesTracker

    fork = CudaRNGStatesTracker.fork

    @contextlib.contextmanager
    def hidden_fork(tracker, *args, **kwargs):
        region = fork(tracker, *args, **kwargs)
        with recorder.hidden():
            region.__enter__()
        try:
            yield
        finally:
            with recorder.hidden():
                region.__exit__(None, None, None)

    with replaced(CudaRNGStatesTracker, fork=hidden_fork):
        yield


def mesh() -> Mesh:
    """The mesh of the running program, read off its process groups.

    Expert parallelism cuts the data-parallel axis into `edp` and `ep`; experts are split over
    `tp` like other layers, so that one mesh holds both the dense and the expert axes.
    """
    from megatron.core import parallel_state

    def ranks_of(group) -> list[int]:
        return torch.distributed.get_process_group_ranks(group)

    def axis(name: str, role: str, group) -> Axis:
        ranks = ranks_of(group)
        stride = ranks[1] - ranks[0] if len(ranks) > 1 else 1
        return Axis(name, len(ranks), stride, role)

    tensor_group = parallel_state.get_tensor_model_parallel_group()
    data_group = parallel_state.get_data_parallel_group()
    data, tensor = axis("dp", "data", data_group), axis("tp", "tensor", tensor_group)
    expert_group = parallel_state.get_expert_model_parallel_group()
    if expert_group.size() == 1:
        return Mesh("main", [data, tensor])
    if ranks_of(parallel_state.get_expert_tensor_parallel_group()) != ranks_of(tensor_group):
        raise NotImplementedError("experts are not split over the same ranks as other layers")
    replicas = axis("edp", "data", parallel_state.get_expert_data_parallel_group())
    experts = axis("ep", "expert", expert_group)
    whole = Mesh("main", [replicas, experts, tensor], {"dp": ["edp", "ep"]})
    if whole.axes_of_group(ranks_of(data_group), torch.distributed.get_rank()) != ["dp"]:
        raise NotImplementedError("the data-parallel ranks are not replicas times experts")
    return whole


_DUAL = {"R": "P", "I": "I", "V": "V"}


def tensor_kind(parameter: torch.nn.Parameter, sequence_parallel: bool) -> tuple[str, int | None]:
    """The kind of a parameter on tp, and the dimension that is cut."""
    if getattr(parameter, "tensor_model_parallel", False):
        dim = getattr(parameter, "partition_dim", -1)
        return "V", dim if dim >= 0 else None
    summed = sequence_parallel and getattr(parameter, "sequence_parallel", False)
    averaged = getattr(parameter, "average_gradients_across_tp_domain", False)
    return ("R" if summed or averaged else "I"), None


def parameter_claims(parameter, sequence_parallel: bool, mesh: Mesh) -> dict:
    """Type, global shape and gradient contract of a parameter."""
    kind, dim = tensor_kind(parameter, sequence_parallel)
    kinds = mesh.kinds(dp="R", tp=kind)
    if not getattr(parameter, "allreduce", True):
        kinds["ep"] = "V"  # each rank has other experts
    claims: dict = {"type": kinds}
    spec = ["tp" if i == dim else None for i in range(parameter.dim())]
    if dim is not None:
        shape = list(parameter.shape)
        shape[dim] *= mesh.axis("tp").size
        claims |= {"gshape": shape, "spec": spec}
    gradient = {"type": {axis: _DUAL[k] for axis, k in claims["type"].items()}}
    step = {"type": claims["type"]}
    if dim is not None:
        gradient["spec"] = step["spec"] = spec
    return claims | {"grad": gradient | {"step": step}}


def optimizer_state(optimizer) -> dict:
    """The state of each parameter; dense and expert parameters have optimizers of their own."""
    state: dict = {}
    for chained in optimizer.chained_optimizers:
        state |= chained.optimizer.state
    return state


def declare_model(recorder: Recorder, ddp, states: dict) -> dict:
    """Declares parameters, gradient buffers and optimizer state; returns parameter values."""
    sequence_parallel = ddp.config.sequence_parallel
    declared = {}
    for name, parameter in ddp.module.named_parameters():
        claims = parameter_claims(parameter, sequence_parallel, recorder.program.mesh)
        flags = {a: getattr(parameter, a) for a in _ATTRIBUTES if hasattr(parameter, a)}
        claims["x_attributes"] = flags
        declared[parameter] = recorder.declare(parameter, "param", name, **claims)
    for buffer in [*ddp.buffers, *ddp.expert_parallel_buffers]:
        recorder.declare_scratch(buffer.grad_data)
        recorder.declare_packed(buffer.grad_data, [p.main_grad for p in buffer.params])
    for parameter, value in declared.items():
        for key, state in states.get(parameter, {}).items():
            claims = {k: value.claims[k] for k in ("gshape", "type", "spec") if k in value.claims}
            if state.dim() == 0:
                claims = {"type": recorder.program.mesh.kinds(dp="R", tp="R")}
            recorder.declare(state, "opt_state", f"{value.claims['name']}.{key}", **claims)
    return declared


def declare_outputs(recorder: Recorder, declared: dict, states: dict) -> None:
    """The reduced gradients and the new parameters and optimizer state."""
    for parameter, value in declared.items():
        name, step = value.claims["name"], value.claims["grad"]["step"]
        recorder.output(parameter.main_grad, "grad", value, name=name, **step)
    for parameter, value in declared.items():
        claims = {k: value.claims[k] for k in ("type", "spec") if k in value.claims}
        recorder.output(parameter, "state", value, name=value.claims["name"], **claims)
        for state in states.get(parameter, {}).values():
            old = recorder.declared_value(state)
            claims = {k: old.claims[k] for k in ("type", "spec") if k in old.claims}
            recorder.output(state, "state", old, name=old.claims["name"], **claims)
