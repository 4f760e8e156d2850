"""One training step of a small Megatron-Core GPT: the program behind the bundled traces.

Two layers, learned positions, vocabulary-parallel embedding and loss, data parallelism with flat
gradient buckets, gradient clipping and AdamW; a dense MLP in each layer or a mixture of experts.
Every part is the framework's own code.
"""

import contextlib
from collections.abc import Callable

import torch

from ..communication.transitions import reinterpret
from ..document import Program
from ..frameworks import cpu, megatron, megatron_clipping, megatron_mappings
from ..ranks import groupsizes, rankdiff
from ..recorder import Recorder
from . import megatron_bugs
from .megatron_model import Batch, Config, build, dropless, groups, with_capacity

__all__ = ["Config", "dropless", "record", "record_rank", "with_capacity"]


class Step:
    """A model, its optimizer and a batch, and what one training step does with them."""

    def __init__(self, config: Config):
        self.config, self.groups = config, groups(config)
        self.ddp, self.optimizer = build(config)
        self.batch = Batch.make(config)
        self.recorder: Recorder | None = None
        self.declared: dict = {}
        if config.pipeline_parallel > 1:
            # What the next stage sends back.
            shape = (config.sequence, config.batch, config.hidden)
            self.incoming = torch.full(shape, 1e-3)

    def declare(self, recorder: Recorder, states: dict) -> None:
        """Declares inputs and model; the steps that follow are recorded."""
        mesh = recorder.program.mesh
        self.recorder = recorder
        self.batch.declare(recorder)
        if self.config.pipeline_parallel > 1:
            kinds = mesh.kinds(pp="V", dp="V", tp="I")
            recorder.declare(self.incoming, "input", "incoming", type=kinds)
            self.incoming.requires_grad_(False)
        self.declared = megatron.declare_model(recorder, self.ddp, states)

    def _section(self, scope: str | None, phase: str):
        return self.recorder.section(scope, phase) if self.recorder else contextlib.nullcontext()

    def run(self) -> torch.Tensor:
        """One training step; the loss."""
        from megatron.core.distributed import finalize_model_grads

        with self._section("zero_grad", "opt"):
            self.ddp.zero_grad_buffer()
            self.optimizer.zero_grad()
        with self._section("loss", "fwd"):
            loss, tokens = self._loss()
        if self.recorder:
            self.recorder.backward(loss)
            megatron.leave_backward(self.recorder, self.declared)
        else:
            loss.backward()
        with self._section("finalize_grads", "opt"):
            finalize_model_grads([self.ddp], tokens, pg_collection=self.groups)
        if self.recorder:
            megatron.enter_optimizer(self.recorder, self.declared)
        with self._section("optimizer", "opt"):
            self.optimizer.step()
        return loss

    def _loss(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The loss of this rank as an addend of the whole, and the tokens if they divide later."""
        batch, config = self.batch, self.ddp.config
        result = self.ddp(batch.tokens, batch.positions, batch.mask, labels=batch.labels)
        if self.config.pipeline_parallel > 1:
            # The derivative of this sum is what the next stage would send.
            return self._mean((result * self.incoming).sum()), None
        if config.calculate_per_token_loss:
            return self._sum_over_tokens(result)
        loss = (result * batch.loss_mask).sum() / batch.loss_mask.sum()
        return self._mean(loss), None

    def _addend(self, loss: torch.Tensor) -> torch.Tensor:
        """Ranks with other samples or layers have other losses, which are added up."""
        for axis in ("pp", "dp", "cp"):
            if self.recorder is None or self.recorder.program.mesh.has(axis):
                loss = reinterpret(loss, axis, src="V", dst="P")
        return loss

    def _mean(self, loss: torch.Tensor) -> torch.Tensor:
        """The gradient buckets take the mean of the losses that are added up here."""
        from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler

        replicas = groupsizes.axis_size(self.ddp.dp_cp_group)
        loss = self._addend(loss)
        loss = groupsizes.scaled(loss / int(replicas), replicas)
        if self.ddp.config.num_moe_experts:
            ones = torch.ones(1) / int(replicas)
            MoEAuxLossAutoScaler.set_loss_scale(groupsizes.scaled(ones, replicas))
        return loss

    def _sum_over_tokens(self, losses: torch.Tensor):
        """The sum over tokens; the finaliser divides by their number on all ranks."""
        from megatron.core.parallel_state import get_context_parallel_group
        from megatron.core.pipeline_parallel import schedules

        def loss_func(output):
            total = (output * self.batch.loss_mask).sum()
            return total, self.batch.loss_mask.sum().to(torch.int), {}

        parts = groupsizes.axis_size(get_context_parallel_group())
        settings = (self.ddp.config, None, False, 1, [], parts, True)
        step = schedules.forward_step_calc_loss
        loss, tokens = step(self.ddp, losses, loss_func, *settings)
        return self._addend(loss), tokens


def expert_load(ddp, recorder: Recorder) -> torch.Tensor:
    """The auxiliary loss as it is logged, summed and averaged over all ranks."""
    from megatron.core.transformer.moe.moe_utils import track_moe_metrics

    metrics: dict = {}
    with recorder.section("log", "opt"):
        track_moe_metrics(1.0, 0, total_loss_dict=metrics, num_layers=ddp.config.num_layers)
    return metrics["load_balancing_loss"]


def record(config: Config, bug: str | Callable | None = None) -> Program:
    """Records one step on rank 0; a comparison with neighbour ranks finds the numbers of its own.

    `bug` is a name in `megatron_bugs`, or a context in which the step runs.
    """
    program = record_rank(config, 0, bug)
    neighbours = []
    for axis in program.mesh.axes:
        if axis.name == "pp":
            continue  # another stage is another program
        for coordinate in sorted({1, axis.size - 1} - {0}):
            other = record_rank(config, coordinate * axis.stride, bug)
            neighbours.append(rankdiff.Neighbour(axis.name, coordinate, other))
    rankdiff.resolve(program, neighbours)
    return program


def record_rank(config: Config, rank: int, bug: str | Callable | None = None) -> Program:
    """Records one step on `rank`, after an unrecorded one that creates the optimizer state."""
    from megatron.core import package_info, parallel_state
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

    megatron.install_norm_standin()
    with (
        cpu.fake_ranks(rank, config.world),
        cpu.cuda_on_cpu(),
        megatron.cpu_standins(),
        groupsizes.followed(*megatron.SCALING_MODULES),
    ):
        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=config.tensor_parallel,
            pipeline_model_parallel_size=config.pipeline_parallel,
            context_parallel_size=config.context_parallel,
            expert_model_parallel_size=config.expert_parallel,
            expert_tensor_parallel_size=config.expert_tensor_parallel,
            create_gloo_process_groups=False,
        )
        try:
            megatron.forget_last_step()
            torch.manual_seed(0)
            model_parallel_cuda_manual_seed(1)
            whole = Step(config)
            with megatron_bugs.planted(bug, whole.ddp, whole.optimizer):
                whole.run()
                megatron.forget_last_step()
                framework = f"megatron-core {package_info.__version__}"
                recorder = Recorder(megatron.mesh(whole.groups), rank, framework)
                recorder.program.local = False
                inside = recorder.program.mesh.context(local=True)
                recorder.context = lambda op: inside
                return _record_step(recorder, whole)
        finally:
            parallel_state.destroy_model_parallel()


def _record_step(recorder: Recorder, whole: Step) -> Program:
    ddp, states = whole.ddp, megatron.optimizer_state(whole.optimizer)
    whole.declare(recorder, states)
    with contextlib.ExitStack() as stack:
        stack.enter_context(megatron_mappings.typed_mappings(recorder))
        stack.enter_context(megatron.hidden_random_states(recorder))
        stack.enter_context(megatron_clipping.recorded_clipping(recorder, ddp))
        stack.enter_context(recorder.recording(ddp.module))
        loss = whole.run()
        recorder.output(loss, "loss")
        megatron.declare_outputs(recorder, whole.declared, states)
        if ddp.config.num_moe_experts:
            logged = expert_load(ddp, recorder)
            kinds = recorder.program.mesh.kinds(dp="R", tp="R")
            recorder.output(logged, "output", name="load_balancing_loss", type=kinds)
    return recorder.program
