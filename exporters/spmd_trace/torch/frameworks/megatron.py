"""Megatron-Core on the CPU: stand-ins, its mesh, and what a recorded step declares.

Gradient buffers are packed; what parameters promise is in `megatron_contracts`.
"""

import contextlib
import sys
import types

import torch

from ..communication.mesh import Axis, Mesh, axes_in
from ..hostnumbers import HostSizes
from ..recorder import Recorder
from .cpu import replaced
from .megatron_contracts import Contracts

# Where gradients and losses are multiplied and divided by sizes of groups.
SCALING_MODULES = ("megatron.core.distributed", "megatron.core.pipeline_parallel")


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


def _l2_norm(chunk_size, overflow, tensor_lists, per_tensor, *args):
    """The fused norm over a list of tensors."""
    norms = torch.stack([torch.linalg.vector_norm(tensor) for tensor in tensor_lists[0]])
    return torch.linalg.vector_norm(norms).reshape(1), None


def fused_norm():
    """The norm of a list as one tensor: without CUDA extensions Megatron-Core takes it through
    numbers of the host."""
    clip_grads = sys.modules.get("megatron.core.optimizer.clip_grads")
    if clip_grads is None:
        return contextlib.nullcontext()
    return replaced(clip_grads, l2_norm_impl=_l2_norm)


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

    def to_host(tensor, as_numpy: bool = False, record_stream: bool = False):
        if not as_numpy or not torch.is_tensor(tensor):
            return tensor
        return HostSizes(torch._C.TensorBase.tolist(tensor), tensor)

    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(random, **states))
        stack.enter_context(replaced(clip_grads, l2_norm_impl=_l2_norm))
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


def _ranks_of(group) -> list[int]:
    return torch.distributed.get_process_group_ranks(group)


def _axis(name: str, role: str, group, local: bool = False) -> Axis:
    ranks = _ranks_of(group)
    stride = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    return Axis(name, len(ranks), stride, role, local)


def mesh(own=None) -> Mesh:
    """The mesh of the running program, read off its process groups, or those of a model.

    Expert parallelism cuts the data-parallel axis into `edp` and `ep`, where experts are split over
    `tp` like other layers; where they are not split, `ep` has the ranks of `tp` and of a part of
    the data-parallel axis, `din`. One mesh holds both the dense and the expert axes.
    """
    from megatron.core import parallel_state

    tensor_group = own.tp if own else parallel_state.get_tensor_model_parallel_group()
    data_group = own.dp if own else parallel_state.get_data_parallel_group()
    data, flattened = [_axis("dp", "data", data_group)], {}
    tensor = _axis("tp", "tensor", tensor_group)
    expert_group = parallel_state.get_expert_model_parallel_group()
    if expert_group.size() > 1:
        data, flattened = _expert_axes(tensor, expert_group)
    # Each stage is another program: what they hold makes no tensor.
    stages = _axis("pp", "pipeline", parallel_state.get_pipeline_model_parallel_group(), True)
    parts = _axis("cp", "context", parallel_state.get_context_parallel_group())
    if parts.size > 1:
        flattened["dp_cp"] = [*(axis.name for axis in data), "cp"]
    axes = [axis for axis in (stages, parts) if axis.size > 1]
    axes = sorted([*axes, *data, tensor], key=lambda axis: -axis.stride)
    whole = Mesh("main", axes, flattened)
    pieces = [whole.axis(name) for name in whole.pieces("dp")]
    if whole.ranks_along(tuple(pieces), torch.distributed.get_rank()) != _ranks_of(data_group):
        raise NotImplementedError("the data-parallel ranks are not replicas times experts")
    return whole


def _expert_axes(tensor: Axis, expert_group) -> tuple[list[Axis], dict[str, list[str]]]:
    """The pieces of the data-parallel axis, and which axes are flattened ones."""
    from megatron.core import parallel_state

    replicas = _axis("edp", "data", parallel_state.get_expert_data_parallel_group())
    split = parallel_state.get_expert_tensor_parallel_group()
    if split.size() == tensor.size:
        return [replicas, _axis("ep", "expert", expert_group)], {"dp": ["edp", "ep"]}
    inner, rest = divmod(expert_group.size(), tensor.size)
    if split.size() > 1 or rest or inner == 1:
        raise NotImplementedError("experts that are split over part of the tensor ranks")
    middle = Axis("din", inner, tensor.stride * tensor.size, "data")
    return [replicas, middle], {"dp": ["edp", "din"], "ep": ["din", "tp"]}


def optimizer_state(optimizer) -> dict:
    """The state of each parameter; dense and expert parameters have optimizers of their own."""
    state: dict = {}
    for chained in optimizer.chained_optimizers:
        state |= chained.optimizer.state
    return state


def declare_model(recorder: Recorder, ddp, states: dict) -> dict:
    """Declares parameters, gradient buffers and optimizer state; returns parameter values."""
    contracts = Contracts(ddp, recorder.program.mesh)
    declared = {}
    for name, parameter in ddp.module.named_parameters():
        claims = contracts.claims(name, parameter)
        declared[parameter] = recorder.declare(parameter, "param", name, **claims)
    for buffer in [*ddp.buffers, *ddp.expert_parallel_buffers]:
        recorder.declare_scratch(buffer.grad_data)
        recorder.declare_packed(buffer.grad_data, [p.main_grad for p in buffer.params])
    for parameter, value in declared.items():
        for key, state in states.get(parameter, {}).items():
            claims = {k: value.claims[k] for k in ("gshape", "type", "spec") if k in value.claims}
            if state.dim() == 0:
                claims = {"type": recorder.program.mesh.kinds(pp="R", dp="R", cp="R", tp="R")}
            recorder.declare(state, "opt_state", f"{value.claims['name']}.{key}", **claims)
    return declared


def leave_backward(recorder: Recorder, declared: dict) -> None:
    """States which gradients are sums when they leave the backward, as their parameters promise.

    Ranks that each use a replicate parameter have addends of its gradient.
    """
    with recorder.section("gradients", "opt"):
        for parameter, value in declared.items():
            kinds = value.claims["grad"]["type"]
            pending = [axis for axis, kind in kinds.items() if kind == "P"]
            if pending:
                gradient, words = parameter.main_grad, {"axis": pending, "src": "V", "dst": "P"}
                recorder.emit("reinterpret_", [gradient], [gradient], words, mut=[0])


def enter_optimizer(recorder: Recorder, declared: dict) -> None:
    """From here on operations are global: where a parameter is cut so is its gradient.

    What is before is local: forward and backward merge samples and heads with other dimensions, as
    is usual.
    """
    after = recorder.program.mesh.context(local=False)
    recorder.context = lambda op: after
    with recorder.section("gradients", "opt"):
        for parameter, value in declared.items():
            if spec := value.claims["grad"]["step"].get("spec"):
                axes = [axis for entry in spec for axis in axes_in(entry)]
                gradient, words = parameter.main_grad, {"type": dict.fromkeys(axes, "V")}
                words |= {"spec": spec}
                recorder.emit("from_local_", [gradient], [gradient], words, mut=[0])


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
