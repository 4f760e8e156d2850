"""The models that the recorded Megatron-Core steps train: one GPT in several settings.

Every part is the framework's own code; what is ours is how parts are put together at the output.
"""

import dataclasses

import torch

from ..communication.mesh import spec_of


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of the model and of the mesh, and settings of the framework."""

    sequence_parallel: bool = False
    layers: int = 2
    hidden: int = 64
    heads: int = 8  # none: the layers have no attention
    sequence: int = 16  # on all ranks of a context-parallel group together
    vocabulary: int = 128
    batch: int = 2
    tensor_parallel: int = 4
    context_parallel: int = 1
    pipeline_parallel: int = 1  # the first stage is recorded
    world: int = 8
    experts: int = 0  # in each layer, in place of the dense MLP; none if 0
    expert_parallel: int = 1
    expert_tensor_parallel: int | None = None  # as other layers
    experts_per_token: int = 2
    capacity: bool = True  # a fixed number of tokens for each expert; else as many as come
    head: str = "words"  # or "hidden", "pooler": what comes after the layers
    swapped_groups: bool = False  # the model has another tensor group than the process
    settings: dict = dataclasses.field(default_factory=dict)  # of the transformer
    model: dict = dataclasses.field(default_factory=dict)  # arguments of the GPT
    wrapper: dict = dataclasses.field(default_factory=dict)  # of data parallelism


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
    split = config.expert_tensor_parallel
    return (load if config.capacity else {}) | {
        "num_moe_experts": config.experts,
        "expert_model_parallel_size": config.expert_parallel,
        "expert_tensor_parallel_size": split or config.tensor_parallel,
        "moe_router_topk": config.experts_per_token,
        "moe_router_load_balancing_type": "aux_loss",
        "moe_aux_loss_coeff": 0.01,
        "moe_token_dispatcher_type": "alltoall",
        "add_bias_linear": False,
    }


def _transformer(config: Config):
    from megatron.core.transformer.transformer_config import TransformerConfig

    settings = dict(
        num_layers=config.layers * config.pipeline_parallel,
        hidden_size=config.hidden,
        num_attention_heads=config.heads or config.tensor_parallel,
        tensor_model_parallel_size=config.tensor_parallel,
        context_parallel_size=config.context_parallel,
        pipeline_model_parallel_size=config.pipeline_parallel,
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
    if config.pipeline_parallel > 1:
        settings["pipeline_dtype"] = torch.float32
    return TransformerConfig(**_expert_settings(config), **(settings | config.settings))


def _layer(config: Config):
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.identity_op import IdentityFuncOp, IdentityOp

    norms = config.settings.get("qk_layernorm", False)
    experts = config.experts or None
    spec = get_gpt_layer_local_spec(experts, qk_layernorm=norms, normalization="LayerNorm")
    if not config.heads:
        spec.submodules.input_layernorm = IdentityOp
        spec.submodules.self_attention = IdentityOp
        spec.submodules.self_attn_bda = IdentityFuncOp
    return spec


class Summary(torch.nn.Module):
    """A number for each token, or one for each sample, that is the same on every tensor rank."""

    def __init__(self, model: torch.nn.Module, pooled: bool):
        super().__init__()
        from megatron.core.models.bert.pooler import Pooler

        self.model, config = model, model.config
        if pooled:
            split = config.sequence_parallel
            self.pooler = Pooler(config.hidden_size, config.init_method, config, split)
        self.pooled = pooled

    def forward(self, tokens, positions, mask, labels=None):
        from megatron.core.tensor_parallel import mappings

        hidden = self.model(tokens, positions, mask)
        if self.pooled:
            return self.pooler(hidden).square().mean(-1, keepdim=True)
        gather = mappings.gather_from_sequence_parallel_region
        whole = gather(hidden, tensor_parallel_output_grad=False)
        return whole.square().mean(-1).transpose(0, 1)


def groups(config: Config):
    """The process groups of the model; None if they are those of the process."""
    from megatron.core.process_groups_config import ProcessGroupCollection

    if not config.swapped_groups:
        return None
    found = ProcessGroupCollection.use_mpu_process_groups()
    tensor, data = found.tp, found.dp
    for name in ("tp", "mp", "tp_cp", "tp_ep", "tp_ep_pp"):
        setattr(found, name, data)
    for name in ("dp", "dp_cp", "intra_dp_cp", "expt_dp", "intra_expt_dp"):
        setattr(found, name, tensor)
    return found


def build(config: Config):
    """The model wrapped for data parallelism, and its optimizer."""
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

    transformer, own = _transformer(config), groups(config)
    whole = config.head == "words" and config.pipeline_parallel == 1
    model = GPTModel(
        transformer,
        _layer(config),
        vocab_size=config.vocabulary,
        max_sequence_length=config.sequence,
        position_embedding_type="learned_absolute",
        **({} if own is None else {"pg_collection": own}),
        **({} if whole else {"post_process": False}),
        **config.model,
    )
    if config.head != "words":
        model = Summary(model, pooled=config.head == "pooler")
    wrapping = DistributedDataParallelConfig(**config.wrapper)
    ddp = DistributedDataParallel(transformer, wrapping, model, pg_collection=own)
    settings = OptimizerConfig(
        optimizer="adam", lr=1e-3, weight_decay=0.01, clip_grad=0.5, params_dtype=torch.float32
    )
    return ddp, get_megatron_optimizer(
        settings, [ddp], use_gloo_process_groups=False, pg_collection=own
    )


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
        length = config.sequence // config.context_parallel
        shape = (config.batch, length)
        causal = torch.ones(length, length, dtype=torch.bool).triu(1)
        return Batch(
            tokens=torch.randint(0, config.vocabulary, shape),
            positions=torch.arange(length).expand(shape).contiguous(),
            mask=causal.expand(1, 1, *causal.shape).contiguous(),
            labels=torch.randint(0, config.vocabulary, shape),
            loss_mask=torch.ones(shape),
        )

    def declare(self, recorder) -> None:
        """Data-parallel ranks have their own samples, context-parallel ones parts of a sequence.

        Tensor-parallel ranks share both; other stages have inputs of their own.
        """
        mesh = recorder.program.mesh
        parts = [mesh.pieces("dp"), [a.name for a in mesh.axes if a.name == "cp"]]
        common = {"dp": "R", "cp": "R", "tp": "R", "pp": "V"}
        for name in ("tokens", "positions", "mask", "labels", "loss_mask"):
            tensor = getattr(self, name)
            claims: dict = {"type": mesh.kinds(**common)}
            if name in ("tokens", "labels", "loss_mask"):
                counts = [mesh.ranks(axes) for axes in parts]
                shape = [size * count for size, count in zip(tensor.shape, counts)]
                spec = spec_of(parts)
                kinds = mesh.kinds(**(common | {"dp": "V", "cp": "V"}))
                claims = {"gshape": shape, "type": kinds, "spec": spec}
            elif name == "positions":
                claims = {"type": mesh.kinds(**(common | {"cp": "V"}))}
            recorder.declare(tensor, "input", name, **claims)
