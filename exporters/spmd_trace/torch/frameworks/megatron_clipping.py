"""The gradient norm of Megatron-Core as one operation per class of gradients.

Its kernel takes the norm of a list in one go, and the list differs between ranks: gradients that
tensor ranks hold in common are on it on the first of them only. Which ones these are is asked of
the framework, as another tensor rank would ask.
"""

import contextlib
import types

import torch
import torch.distributed as dist

from ..recorder import Recorder
from .cpu import replaced


@contextlib.contextmanager
def _at_tensor_rank(rank: int, tensor_group):
    """The framework believes that it runs on another tensor rank."""
    from megatron.core.tensor_parallel import layers

    tensor_ranks = dist.get_process_group_ranks(tensor_group)
    own = dist.ProcessGroup.rank

    def rank_in(group):
        return rank if dist.get_process_group_ranks(group) == tensor_ranks else own(group)

    with replaced(dist.ProcessGroup, rank=rank_in):
        with replaced(layers, get_tensor_model_parallel_rank=lambda: rank):
            yield


class _Clipping:
    """Records norms; remembers which gradients of the latest list count on the first rank only."""

    def __init__(self, recorder: Recorder, ddp):
        self.recorder = recorder
        self.shared = {
            parameter.main_grad.data_ptr()
            for parameter in ddp.module.parameters()
            if getattr(parameter, "shared_embedding", False)
        }
        self.everywhere: list[torch.Tensor] = []

    def listed(self, original):
        """Wraps the method of an optimizer that lists gradients."""
        from megatron.core.parallel_state import get_tensor_model_parallel_group

        def on_first_rank(optimizer):
            group = getattr(optimizer, "tp_group", None) or get_tensor_model_parallel_group()
            with _at_tensor_rank(1, group):
                self.everywhere += original(optimizer)
            with _at_tensor_rank(0, group):
                return original(optimizer)

        return on_first_rank

    def norm(self, original):
        """Wraps the function that takes the norm of a list and sums over a group."""

        def recorded(gradients, norm_type=2, grad_stats_parallel_group=None):
            recorder = self.recorder
            if recorder.is_hidden:
                return original(gradients, norm_type, grad_stats_parallel_group)
            if norm_type != 2:
                raise NotImplementedError(f"a norm of order {norm_type}")
            with recorder.hidden():
                result = original(gradients, norm_type, grad_stats_parallel_group)
            norms = [
                self._emit("total_norm", [list(members)], {"axis": axes} if axes else {})
                for axes, members in self._classes(gradients, grad_stats_parallel_group)
            ]
            total = norms[0]
            for norm in norms[1:]:
                total = self._emit("hypot", [total, norm], {})
            with recorder.hidden():
                total.fill_(result)
            return total.item()

        return recorded

    def _classes(self, gradients: list[torch.Tensor], group):
        """Gradients by the axes over which their squares are added up."""
        everywhere = {gradient.data_ptr() for gradient in self.everywhere}
        self.everywhere = []
        axes = self._axes(group)
        classes: dict[tuple[str, ...], list[torch.Tensor]] = {}
        for gradient in gradients:
            once = set() if gradient.data_ptr() in everywhere else {"tp"}
            if gradient.data_ptr() in self.shared:
                once.add("pp")  # the last stage leaves it out
            if not once & set(self._sizes()) <= set(axes):
                raise NotImplementedError("a norm that counts on one rank and is not summed")
            summed = tuple(axis for axis in axes if axis not in once)
            classes.setdefault(summed, []).append(gradient)
        return [(list(summed), members) for summed, members in classes.items()]

    def _sizes(self) -> list[str]:
        """The axes of more than one rank."""
        return [axis.name for axis in self.recorder.program.mesh.axes if axis.size > 1]

    def _emit(self, name: str, operands: list, attrs: dict) -> torch.Tensor:
        with self.recorder.hidden():
            result = torch.zeros(())
        self.recorder.emit(name, operands, [result], attrs)
        return result

    def _axes(self, group) -> list[str]:
        program = self.recorder.program
        if group.size() == 1:
            return []
        axes = program.mesh.axes_of_group(dist.get_process_group_ranks(group), program.rank)
        if axes is None:
            raise NotImplementedError("a norm that is summed over an irregular group")
        return axes


@contextlib.contextmanager
def recorded_clipping(recorder: Recorder, ddp):
    """Records the gradient norms that the optimizers take while the context lasts."""
    from megatron.core.optimizer import optimizer

    clipping, base = _Clipping(recorder, ddp), optimizer.MegatronOptimizer
    listed = clipping.listed(base.get_main_grads_for_grad_norm)
    # Several optimizers take the root of the sum of their squared norms, on the host.
    root = types.SimpleNamespace(sqrt=lambda number: number**0.5)
    norm = clipping.norm(optimizer.get_grad_norm_fp32)
    with replaced(base, get_main_grads_for_grad_norm=listed):
        with replaced(optimizer, get_grad_norm_fp32=norm, math=root):
            yield
