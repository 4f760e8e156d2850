"""One training step of a small Megatron-Core GPT: the program behind the bundled traces.

Two layers, learned positions, vocabulary-parallel embedding and loss, data parallelism with flat
gradient buckets, gradient clipping and AdamW; a dense MLP in each layer or a mixture of experts.
Every part is the framework's own code.
"""

import contextlib
import dataclasses
import math

import torch

from .. import rankdiff
from ..document import Program
from ..frameworks import cpu, megatron, megatron_mappings
from ..recorder import Recorder
from ..transitions import reinterpret
from . import megatron_bugs


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of the model and of the mesh."""

    sequence_parallel: bool = False
    layers: int = 2
    hidden: int = 64
    heads: int = 8
    sequence: int = 16
    vocabulary: int = 128
    batch: int = 2
    tensor_parallel: int = 4
    world: int = 8
    experts: int = 0  # in each layer, in place of the dense MLP; none if 0
    expert_parallel: int = 1
    experts_per_token: int = 2
    capacity: bool = True  # a fixed number of tokens for each expert; else as many as come


def with_capacity(**settings) -> Config:
    """Four experts, two on each rank of ep, that take a fixed number of tokens."""
    # With tensor parallelism, Megatron's experts need split sequences.
    sizes = {"experts": 4, "expert_parallel": 2, "tensor_parallel": 2}
    return Config(sequence_parallel=True, **(sizes | settings))


def dropless(**settings) -> Config:
    """Four experts, one on each rank of ep, that take whatever the router sends them."""
    return with_capacity(capacity=False, expert_parallel=4, world=16, **settings)


def _expert_settings(config: Config) -> dict:
    """The layers of experts: a router with an auxiliary loss, tokens sent by all-to-all."""
    if not config.experts:
        return {}
    if not config.capacity and config.experts != config.expert_parallel:
        raise NotImplementedError("several experts on a rank without a capacity")
    load = {"moe_expert_capacity_factor": 1.0, "moe_pad_expert_input_to_capacity": True}
    return (load if config.capacity else {}) | {
        "num_moe_experts": config.experts,
        "expert_model_parallel_size": config.expert_parallel,
        "moe_router_topk": config.experts_per_token,
        "moe_router_load_balancing_type": "aux_loss",
        "moe_aux_loss_coeff": 0.01,
        "moe_token_dispatcher_type": "alltoall",
        "add_bias_linear": False,
    }


def build(config: Config):
    """The model wrapped for data parallelism, and its optimizer."""
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.transformer.transformer_config import TransformerConfig

    transformer = TransformerConfig(
        **_expert_settings(config),
        num_layers=config.layers,
        hidden_size=config.hidden,
        num_attention_heads=config.heads,
        tensor_model_parallel_size=config.tensor_parallel,
        sequence_parallel=config.sequence_parallel,
        use_cpu_initialization=True,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        masked_softmax_fusion=False,
        bias_dropout_fusion=False,
        bias_activation_fusion=False,
        gradient_accumulation_fusion=False,
        apply_rope_fusion=False,
        persist_layer_norm=False,
    )
    model = GPTModel(
        transformer,
        get_gpt_layer_local_spec(num_experts=config.experts or None, normalization="LayerNorm"),
        vocab_size=config.vocabulary,
        max_sequence_length=config.sequence,
        position_embedding_type="learned_absolute",
    )
    ddp = DistributedDataParallel(transformer, DistributedDataParallelConfig(), model)
    settings = OptimizerConfig(
        optimizer="adam", lr=1e-3, weight_decay=0.01, clip_grad=0.5, params_dtype=torch.float32
    )
    return ddp, get_megatron_optimizer(settings, [ddp], use_gloo_process_groups=False)


@dataclasses.dataclass
class Batch:
    """The inputs of a step on one rank."""

    tokens: torch.Tensor
    positions: torch.Tensor
    mask: torch.Tensor
    labels: torch.Tensor
    loss_mask: torch.Tensor

    @staticmethod
    def make(config: Config) -> "Batch":
        shape = (config.batch, config.sequence)
        causal = torch.ones(config.sequence, config.sequence, dtype=torch.bool).triu(1)
        return Batch(
            tokens=torch.randint(0, config.vocabulary, shape),
            positions=torch.arange(config.sequence).expand(shape).contiguous(),
            mask=causal.expand(1, 1, *causal.shape).contiguous(),
            labels=torch.randint(0, config.vocabulary, shape),
            loss_mask=torch.ones(shape),
        )

    def declare(self, recorder: Recorder) -> None:
        """Each data-parallel rank has its own samples; tensor-parallel ranks share them."""
        mesh = recorder.program.mesh
        data = mesh.pieces("dp")
        replicas = math.prod(mesh.axis(name).size for name in data)
        for name in ("tokens", "positions", "mask", "labels", "loss_mask"):
            tensor = getattr(self, name)
            claims: dict = {"type": mesh.kinds(dp="R", tp="R")}
            if name in ("tokens", "labels", "loss_mask"):
                shape = [tensor.shape[0] * replicas, *tensor.shape[1:]]
                spec = [data if len(data) > 1 else data[0], None]
                claims = {"gshape": shape, "type": mesh.kinds(dp="V", tp="R"), "spec": spec}
            recorder.declare(tensor, "input", name, **claims)


def step(ddp, optimizer, batch: Batch, recorder: Recorder | None = None) -> torch.Tensor:
    """One training step."""
    from megatron.core.distributed import finalize_model_grads
    from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler

    def section(scope: str | None, phase: str):
        return recorder.section(scope, phase) if recorder else contextlib.nullcontext()

    with section("zero_grad", "opt"):
        ddp.zero_grad_buffer()
        optimizer.zero_grad()
    with section("loss", "fwd"):
        losses = ddp(batch.tokens, batch.positions, batch.mask, labels=batch.labels)
        loss = (losses * batch.loss_mask).sum() / batch.loss_mask.sum()
        # Every data-parallel rank adds its own loss; the gradient buckets take the mean.
        loss = reinterpret(loss, "dp", src="V", dst="P")
        if ddp.config.num_moe_experts:
            MoEAuxLossAutoScaler.set_loss_scale(torch.ones(1))
    if recorder:
        recorder.backward(loss)
    else:
        loss.backward()
    with section("finalize_grads", "opt"):
        finalize_model_grads([ddp])
    with section("optimizer", "opt"):
        optimizer.step()
    return loss


def expert_load(ddp, recorder: Recorder) -> torch.Tensor:
    """The auxiliary loss as it is logged, summed and averaged over all ranks."""
    from megatron.core.transformer.moe.moe_utils import track_moe_metrics

    metrics: dict = {}
    with recorder.section("log", "opt"):
        track_moe_metrics(1.0, 0, total_loss_dict=metrics, num_layers=ddp.config.num_layers)
    return metrics["load_balancing_loss"]


def record(config: Config, bug: str | None = None) -> Program:
    """Records one step on rank 0, with its rank-dependent numbers told from neighbour ranks."""
    program = record_rank(config, 0, bug)
    neighbours = []
    for axis in program.mesh.axes:
        for coordinate in sorted({1, axis.size - 1} - {0}):
            other = record_rank(config, coordinate * axis.stride, bug)
            neighbours.append(rankdiff.Neighbour(axis.name, coordinate, other))
    rankdiff.resolve(program, neighbours)
    return program


def record_rank(config: Config, rank: int, bug: str | None = None) -> Program:
    """Records one step on `rank`, after an unrecorded one that creates the optimizer state."""
    from megatron.core import package_info, parallel_state
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

    megatron.install_norm_standin()
    with cpu.fake_ranks(rank, config.world), cpu.cuda_on_cpu(), megatron.cpu_standins():
        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=config.tensor_parallel,
            expert_model_parallel_size=config.expert_parallel,
            create_gloo_process_groups=False,
        )
        try:
            torch.manual_seed(0)
            model_parallel_cuda_manual_seed(1)
            ddp, optimizer = build(config)
            batch = Batch.make(config)
            with megatron_bugs.planted(bug, ddp, optimizer):
                step(ddp, optimizer, batch)
                megatron.forget_last_step()
                framework = f"megatron-core {package_info.__version__}"
                recorder = Recorder(megatron.mesh(), rank, framework)
                return _record_step(recorder, ddp, optimizer, batch)
        finally:
            parallel_state.destroy_model_parallel()


def _record_step(recorder: Recorder, ddp, optimizer, batch: Batch) -> Program:
    states = megatron.optimizer_state(optimizer)
    batch.declare(recorder)
    declared = megatron.declare_model(recorder, ddp, states)
    with contextlib.ExitStack() as stack:
        stack.enter_context(megatron_mappings.typed_mappings(recorder))
        stack.enter_context(megatron.hidden_random_states(recorder))
        stack.enter_context(megatron.recorded_clipping(recorder, ddp))
        stack.enter_context(recorder.recording(ddp.module))
        loss = step(ddp, optimizer, batch, recorder)
        recorder.output(loss, "loss", type=recorder.program.mesh.kinds(dp="P", tp="I"))
        megatron.declare_outputs(recorder, declared, states)
        if ddp.config.num_moe_experts:
            kinds = recorder.program.mesh.kinds(dp="R", tp="R")
            logged = expert_load(ddp, recorder)
            recorder.output(logged, "output", name="load_balancing_loss", type=kinds)
    return recorder.program
