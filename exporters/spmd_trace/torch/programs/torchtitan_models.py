"""One training step of torchtitan's debug models, as its trainer runs it.

The trainer itself is not used: it builds data loaders, loggers and checkpoints. What it does to
the model in a step is here: forward, loss, backward, clipping, the optimizer.
"""

import contextlib
import dataclasses
import importlib
import importlib.metadata
import types
from collections.abc import Callable

import spmd_types
import torch

from ..composites import Composites
from ..document import Program
from ..frameworks import cpu, fsdp, torchtitan
from ..frameworks.spmd_types_words import Words
from ..ranks import rankdiff
from ..recorder import Recorder
from . import torchtitan_bugs


@dataclasses.dataclass(frozen=True)
class Config:
    """A model of torchtitan at its debug size, with `layers` layers, on a grid of ranks."""

    model: str = "llama3"
    data_parallel: int = 1
    tensor_parallel: int = 4
    expert_parallel: int = 1
    sequence_parallel: bool = False
    layers: int = 2
    samples: int = 2
    sequence: int = 32
    typecheck: bool = True

    @property
    def world(self) -> int:
        return self.data_parallel * self.tensor_parallel


MAX_NORM = 1.0

PARALLEL = {
    "llama3": {
        "tp": {},
        "tp_sp": {"sequence_parallel": True},
        "fsdp_tp_sp": {"sequence_parallel": True, "data_parallel": 2, "tensor_parallel": 2},
    },
    "deepseek_v3": {
        "fsdp_ep": {
            "sequence_parallel": True,
            "data_parallel": 4,
            "tensor_parallel": 2,
            "expert_parallel": 4,
        },
    },
}


class Model:
    """The model, its loss and its optimizer, built as torchtitan does."""

    def __init__(self, config: Config):
        from torchtitan.components.loss import CrossEntropyLoss
        from torchtitan.components.optimizer import default_adamw
        from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
        from torchtitan.distributed import ParallelDims, utils

        registry = importlib.import_module(f"torchtitan.models.{config.model}").model_registry
        kernel = {"attn_backend": "flex"} if config.model == "gpt_oss" else {}
        spec = registry("debugmodel", **kernel)
        parallelism = ParallelismConfig(
            data_parallel_shard_degree=config.data_parallel,
            tensor_parallel_degree=config.tensor_parallel,
            expert_parallel_degree=config.expert_parallel,
            enable_sequence_parallel=config.sequence_parallel,
        )
        training = TrainingConfig(local_batch_size=config.samples, seq_len=config.sequence)
        settings = spec.model
        settings.layers = _as_deep(settings.layers, config.layers)
        for layer in settings.layers:
            rope = dataclasses.replace(layer.attention.rope, max_seq_len=config.sequence)
            layer.attention.rope = rope
            if layer.moe is not None:
                # Tokens go to the experts in turn: sizes do not depend on the data.
                layer.moe.router._debug_force_load_balance = True
        job = types.SimpleNamespace(parallelism=parallelism, training=training)
        settings.update_from_config(config=job)
        self.dims = ParallelDims.from_config(parallelism, config.world)
        self.dims.build_mesh()
        with torch.device("meta"):
            model = settings.build()
        self.model = spec.parallelize_fn(
            model,
            parallel_dims=self.dims,
            training=training,
            parallelism=parallelism,
            compile_config=CompileConfig(),
            ac_config=None,
            dump_folder="",
        )
        self.model.to_empty(device="cpu")
        with torch.no_grad():
            self.model.init_weights(buffer_device=None)
        self.model.train()
        loss = CrossEntropyLoss.Config(global_vocab_size=settings.vocab_size)
        self.loss = loss.build()
        self.context = utils.get_spmd_context(
            parallel_dims=self.dims, spmd_typechecking=config.typecheck
        )
        self.vocabulary = settings.vocab_size
        settings = default_adamw()
        settings.implementation = "for-loop"
        self.optimizers = settings.build(model_parts=[self.model])
        self.experts = config.expert_parallel > 1
        self.routes = any(layer.moe is not None for layer in spec.model.layers)

    def state(self) -> dict:
        """The optimizer state of each parameter."""
        return {p: s for one in self.optimizers for p, s in one.state.items()}


class Batch:
    """The samples of one data-parallel rank, and how many tokens count on all of them."""

    def __init__(self, config: Config, model: Model):
        from torchtitan.distributed.spmd_types import annotate_input_spmd_types

        shape = (config.samples, config.sequence)
        self.tokens = torch.randint(0, model.vocabulary, shape)
        self.labels = torch.randint(0, model.vocabulary, shape)
        self.positions = torch.arange(config.sequence).expand(shape).contiguous()
        self.masks = model.model.get_attention_masks(self.positions)
        self.valid = torch.tensor(config.samples * config.sequence * config.data_parallel)
        extra = {"positions": self.positions}
        annotate_input_spmd_types(model.dims, self.tokens, self.labels, extra)

    def declare(self, recorder: Recorder, words: Words) -> None:
        for name in ("tokens", "labels", "positions"):
            tensor = getattr(self, name)
            recorder.declare(tensor, "input", name, **words.type_of(tensor))
        axes = recorder.program.mesh.axes
        kinds = {axis.name: "R" for axis in axes if axis.size > 1}
        recorder.declare(self.valid, "input", "valid_tokens", type=kinds)


def step(model: Model, batch: Batch, recorder=None, words: Words | None = None, declared=None):
    """One training step; the loss. `declared` are the parameters of a recorded one."""
    from torchtitan.distributed.utils import clip_grad_norm_

    def section(scope: str, phase: str):
        return recorder.section(scope, phase) if recorder else contextlib.nullcontext()

    with section("zero_grad", "opt"):
        model.optimizers.zero_grad()
    with model.context():
        with section("loss", "fwd"):
            result = model.model(
                batch.tokens, positions=batch.positions, attention_masks=batch.masks
            )
            loss, _ = model.loss(result, batch.labels, batch.valid)
        with spmd_types.no_typecheck():
            if recorder and words:
                with words.in_backward():
                    recorder.backward(loss)
            else:
                loss.backward()
    with section("clip", "opt"):
        parameters = list(model.model.parameters())
        clip_grad_norm_(parameters, MAX_NORM, foreach=True, ep_enabled=model.experts)
    with section("optimizer", "opt"):
        if recorder:
            torchtitan.leave_backward(recorder, declared)
        model.optimizers.step()
    return loss


@dataclasses.dataclass
class Recording:
    """A recorded step, and what spmd_types found out about its values."""

    program: Program
    words: Words


def record(config: Config, bug: str | Callable | None = None) -> Recording:
    """Records one step on rank 0; a comparison with neighbour ranks finds the numbers of its own.

    `bug` is a name in `torchtitan_bugs`, or a context in which model and step are made.
    """
    recording = record_rank(config, 0, bug)
    program = recording.program
    neighbours = []
    for axis in program.mesh.axes:
        for coordinate in sorted({1 % axis.size, axis.size - 1} - {0}):
            other = record_rank(config, coordinate * axis.stride, bug).program
            neighbours.append(rankdiff.Neighbour(axis.name, coordinate, other))
    rankdiff.resolve(program, neighbours)
    return recording


def record_rank(config: Config, rank: int, bug: str | Callable | None = None) -> Recording:
    """Records one step on `rank`."""
    with (
        torchtitan.on_cpu(),
        cpu.fake_ranks(rank, config.world),
        torchtitan_bugs.planted(bug),
    ):
        torch.manual_seed(0)
        model = Model(config)
        batch = Batch(config, model)
        step(model, batch)  # creates the optimizer state
        version = importlib.metadata.version("torchtitan")
        first, *more = torchtitan.meshes(model.dims)
        recorder = Recorder(first, rank, f"torchtitan {version}")
        recorder.program.more_meshes = more
        if model.routes:
            recorder.program.extra["rules"] = torchtitan.RULES
        recorder.program.local = False
        words = Words(recorder)
        with spmd_types.set_current_mesh(model.dims.spmd_dense_mesh()):
            batch.declare(recorder, words)
            declared = torchtitan.declare_model(recorder, words, model.model, model.state())
        functions = Composites(recorder)
        with (
            words.recorded(functions),
            fsdp.recorded(recorder, torchtitan.gathered_where(words)),
            recorder.recording(model.model),
            functions,
        ):
            loss = step(model, batch, recorder, words, declared)
            recorder.output(loss, "loss")
            torchtitan.declare_outputs(recorder, declared, model.state())
        return Recording(recorder.program, words)


# Last, since traces have the lines of what stands before.
def _as_deep(layers: list, count: int) -> list:
    """So many of them; beyond those of the debug model its last one again."""
    import copy

    more = max(count - len(layers), 0)
    return layers[:count] + [copy.deepcopy(layers[-1]) for _ in range(more)]
