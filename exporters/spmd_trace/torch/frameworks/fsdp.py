"""Fully sharded data parallelism (FSDP2) as one gather and one scatter of a list of parameters.

Its buffers hold pieces of parameters of different types, and are packed and unpacked by fused
copies. What is recorded is what they do to each parameter: a gather over the data axis makes it
whole before its module runs, a reduce-scatter leaves each rank its piece of the gradient.
"""

import contextlib
import dataclasses
from collections.abc import Callable

import torch
from torch.distributed.fsdp._fully_shard import _fsdp_param_group as groups

from .. import versions
from ..communication.mesh import Context, Mesh
from ..recorder import Recorder
from ..values import DTYPES, Value
from . import dtensors
from .cpu import replaced

# Where a parameter of FSDP2 is gathered: the axis, None if it has one rank, and the context.
Where = Callable[[object], tuple[str | None, Context]]


def local_shard(parameter: torch.nn.Parameter) -> torch.Tensor:
    """What this rank holds of a sharded parameter or gradient."""
    return parameter._local_tensor if hasattr(parameter, "_local_tensor") else parameter


def sharded_parameters(model: torch.nn.Module) -> dict[torch.nn.Parameter, object]:
    """What FSDP2 knows about each parameter of a model."""
    found = {}
    for module in model.modules():
        if isinstance(module, torch.distributed.fsdp.FSDPModule):
            for group in versions.sharded_groups(module._get_fsdp_state()):
                found |= {known.sharded_param: known for known in group.fsdp_params}
    return found


def declare(recorder: Recorder, model: torch.nn.Module) -> dict[torch.nn.Parameter, Value]:
    """Declares the parameters of a model that states no types but those of FSDP2."""
    return {
        parameter: recorder.declare(
            local_shard(parameter), "param", name, **dtensors.claims(recorder, parameter)
        )
        for name, parameter in model.named_parameters()
    }


def along_groups(recorder: Recorder) -> Where:
    """Where the parameters of such a model are gathered: along the group of FSDP2."""

    def where(known):
        axes = dtensors.axes_of(recorder, known.mesh_info.shard_process_group)
        if len(axes) > 1:
            raise NotImplementedError(f"parameters that are cut along {axes} at once")
        return (axes[0] if axes else None), recorder.program.context

    return where


@dataclasses.dataclass
class _Reduction:
    """How gradients are reduced: in which precision, by which operation, along which axes of
    copies."""

    dtype: torch.dtype
    op: str
    replicas: list[str]
    divisor: float | None = None  # a number of the program, before the sum


class _Calls:
    """Writes the two collectives of a group of parameters into the recording."""

    def __init__(self, recorder: Recorder, where: Where):
        self.recorder = recorder
        self.where = where

    def gather(self, parameters: list) -> None:
        wholes = [local_shard(parameter._unsharded_param) for parameter in parameters]
        with torch.no_grad():
            for chosen, axis, dim in self._by_axis_and_dim(parameters):
                shards = [
                    self._cast(parameters[i]._sharded_local_tensor, wholes[i].dtype) for i in chosen
                ]
                words = {"axis": axis, "src": f"S({dim})", "dst": "R"}
                chosen_wholes = [wholes[i] for i in chosen]
                self._emit("all_gather", words, shards, chosen_wholes, chosen_wholes)

    def scatter(self, parameters, gradients, how: "_Reduction", run) -> object:
        before = [self._divided(self._cast(one, how.dtype), how.divisor) for one in gradients]
        olds = [parameter.sharded_param.grad for parameter in parameters]
        with self.recorder.hidden():
            result = run()
        targets = [local_shard(parameter.sharded_param.grad) for parameter in parameters]
        with self.recorder.hidden():
            shards = [one if old is None else one.clone() for one, old in zip(targets, olds)]
        for chosen, axis, dim in self._by_axis_and_dim(parameters):
            words = {"axis": axis, "op": how.op, "dst": f"S({dim})"}
            ins, outs = [before[i] for i in chosen], [shards[i] for i in chosen]
            for over in [axis, *how.replicas]:
                self._state_addends(over, ins)
            self._emit("reduce_scatter", words, ins, outs, ins)
            for over in how.replicas:
                words = {"axis": over, "op": how.op, "src": "P", "dst": "R"}
                for shard in outs:
                    self.recorder.emit("all_reduce_", [shard], [shard], words, mut=[0])
        for target, shard, old in zip(targets, shards, olds):
            if old is not None:
                self.recorder.emit("aten.add_.Tensor", [target, shard], [target], {}, mut=[0])
        return result

    def _divided(self, gradient: torch.Tensor, divisor: float | None) -> torch.Tensor:
        if divisor is None:
            return gradient
        with self.recorder.hidden():
            result = gradient / divisor
        self.recorder.emit("aten.div.Tensor", [gradient, divisor], [result], {})
        return result

    def _state_addends(self, axis: str | None, gradients: list) -> None:
        """Ranks that gathered a parameter have addends of its gradient."""
        if axis is None:
            return
        local = self._mesh().context(local=True)
        words = {"axis": axis, "src": "V", "dst": "P"}
        with replaced(self.recorder, context=lambda op: local):
            for gradient in gradients:
                self.recorder.emit("reinterpret", [gradient], [gradient], words)

    def _mesh(self) -> Mesh:
        """The mesh of the parameters at hand: experts' parameters have one of their own."""
        name = self.recorder.context(None).mesh
        return next(mesh for mesh in self.recorder.program.meshes if mesh.name == name)

    def _by_axis_and_dim(self, parameters: list):
        """Parameters of one axis and dimension at a time, in the context of their mesh."""
        layouts = [(*self.where(known), known.fsdp_placement.dim) for known in parameters]
        for place in dict.fromkeys(layouts):
            axis, context, dim = place
            with replaced(self.recorder, context=lambda op, context=context: context):
                yield [i for i, other in enumerate(layouts) if other == place], axis, dim

    def _emit(self, name: str, words: dict, ins: list, outs: list, wholes: list) -> None:
        """One call for the pieces that are even, and one for each other, whose pieces are
        stated."""
        if words["axis"] is not None:
            dim = int((words.get("src") or words["dst"])[2:-1])
            ranks = self._mesh().ranks([words["axis"]])
            uneven = [whole.shape[dim] % ranks != 0 for whole in wholes]
            even = [place for place, one in enumerate(uneven) if not one]
            if even:
                self.recorder.emit(name, [[ins[i] for i in even]], [outs[i] for i in even], words)
            for place in (place for place, one in enumerate(uneven) if one):
                extent = wholes[place].shape[dim]
                most = -(-extent // ranks)
                splits = [min(most, max(0, extent - most * rank)) for rank in range(ranks)]
                self.recorder.emit(name, [[ins[place]]], [outs[place]], words | {"splits": splits})
            return
        for source, target in zip(ins, outs):
            self.recorder.emit("aten.clone.default", [source], [target], {})

    def _cast(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if tensor.dtype == dtype:
            return tensor
        with self.recorder.hidden():
            result = tensor.to(dtype)
        words = {"dtype": DTYPES[dtype]}
        self.recorder.emit("aten._to_copy.default", [tensor], [result], words)
        return result


@contextlib.contextmanager
def recorded(recorder: Recorder, where: Where):
    """Records what FSDP2 does to parameters, while the context lasts."""
    calls = _Calls(recorder, where)
    group_class = groups.FSDPParamGroup
    unshard, wait, reduce = group_class.unshard, group_class.wait_for_unshard, groups.foreach_reduce

    def hidden_unshard(group, *args, **kwargs):
        with recorder.hidden():
            return unshard(group, *args, **kwargs)

    def wait_for_unshard(group):
        if recorder.is_hidden or not group._all_gather_result:
            return wait(group)
        with recorder.hidden():
            wait(group)
        return calls.gather(group.fsdp_params)

    def foreach_reduce(parameters, gradients, *settings, **options):
        if recorder.is_hidden:
            return reduce(parameters, gradients, *settings, **options)
        asked = versions.sharded_reduction(reduce, parameters, gradients, *settings, **options)

        def unknown(what: str):
            """Reduces as the program says; what comes of it is not known."""
            with recorder.hidden():
                result = reduce(parameters, gradients, *settings, **options)
            trained = [one.sharded_param.grad for one in parameters]
            made = [local_shard(one) for one in trained if one is not None]
            recorder.refuse(what, "reduce as FSDP does by itself", gradients, made)
            return result

        if asked.by_hand:
            return unknown("gradients that FSDP reduces in the program's own way")
        group, divisor = asked.replicas, asked.divisor
        copies = dtensors.axes_of(recorder, group) if group is not None else []
        if copies and not asked.all_replicas:
            return unknown("gradients that FSDP reduces over copies in a later backward")
        # By default it divides by the ranks of both groups.
        how = _Reduction(asked.dtype, "avg" if divisor is None else "sum", copies)
        how.divisor = None if divisor in (None, 1.0) else float(divisor)

        def run():
            return reduce(parameters, gradients, *settings, **options)

        return calls.scatter(parameters, gradients, how, run)

    # The identity around the inputs that starts the reduction when their gradients are there.
    recorder.functions.transparent.add(groups.RegisterPostBackwardFunction)
    with (
        replaced(group_class, wait_for_unshard=wait_for_unshard, unshard=hidden_unshard),
        replaced(groups, foreach_reduce=foreach_reduce),
    ):
        yield
