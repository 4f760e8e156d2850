"""FullyShardedDataParallel (FSDP1) as gathers and reduce-scatters of flat parameters.

A flat parameter holds those of several modules in one dimension, of which each rank has a piece.
Modules use views of what is gathered, so that their operations are recorded as they are; the
gradient of the whole is what autograd makes of these views.
"""

import contextlib

import torch
from torch.distributed.fsdp import FullyShardedDataParallel, _flat_param, _runtime_utils

from ..communication.mesh import spec_of
from ..communication.transitions import DUAL
from ..recorder import Recorder
from ..values import DTYPES
from . import dtensors
from .cpu import replaced


def modules(root: torch.nn.Module) -> list[FullyShardedDataParallel]:
    """The wrappers in a model, outermost first."""
    return [one for one in root.modules() if isinstance(one, FullyShardedDataParallel)]


def _axes(recorder: Recorder, wrapper) -> tuple[list[str], list[str]]:
    """The axes along which parameters are cut, and those along which there are copies."""
    inner = dtensors.axes_of(recorder, wrapper.process_group)
    outer = getattr(wrapper, "_inter_node_pg", None)
    copies = dtensors.axes_of(recorder, outer) if outer is not None else []
    sharded = wrapper._handle is not None and wrapper._handle.uses_sharded_strategy
    return (inner, copies) if sharded else ([], [*inner, *copies])


def axes(recorder: Recorder, root: torch.nn.Module) -> list[str]:
    """Those along which ranks have batches of their own."""
    return [axis for one in modules(root) for group in _axes(recorder, one) for axis in group]


def flat_parameters(recorder: Recorder, root: torch.nn.Module):
    """Pieces of flat parameters, with names and claims."""
    names = {module: name for name, module in root.named_modules()}
    for wrapper in modules(root):
        if (handle := wrapper._handle) is None:
            continue
        flat = handle.flat_param
        shard = flat._local_shard if handle.uses_sharded_strategy else flat
        path = names[wrapper].replace("_fsdp_wrapped_module", "").replace("..", ".").strip(".")
        cut, copies = _axes(recorder, wrapper)
        kinds = dict.fromkeys(cut, "V") | dict.fromkeys(copies, "R")
        step = {"type": kinds} | ({"spec": spec_of([cut])} if cut else {})
        whole = shard.numel() * recorder.program.mesh.ranks(cut)
        gradient = step | {"type": {axis: DUAL[kind] for axis, kind in kinds.items()}, "step": step}
        claims = step | ({"gshape": [whole]} if cut else {}) | {"grad": gradient}
        yield shard, f"{path}.flat_param".strip("."), claims


class _Calls:
    """Writes what a wrapper does to its flat parameter into the recording."""

    def __init__(self, recorder: Recorder, axes: dict):
        self.recorder = recorder
        self.axes = axes  # by handle: the axes of its pieces, and those of its copies

    def gather(self, handle, run):
        shard = handle.flat_param
        with self.recorder.hidden():  # the gather has a gradient, whether or not autograd sees it
            shard = shard.data.view_as(shard)
        self.recorder.see([shard])
        with self.recorder.hidden():
            whole = run()
        cut, _ = self.axes[handle]
        words = {"axis": spec_of([cut])[0], "src": "S(0)", "dst": "R"}
        if cut:
            op = self.recorder.emit("all_gather", [shard], [whole], words)
        else:
            op = self.recorder.emit("aten.clone.default", [shard], [whole], {})
        if self.recorder.grad_mode:
            op.outs[0].requires_grad = handle.flat_param.requires_grad
        return whole

    def reduce(self, state, handle, run) -> None:
        """Pads the gradient, leaves each rank its piece of the average, and adds that to what is
        there."""
        flat = handle.flat_param
        if state._comm_hook is not None:
            return self._by_hook(flat.grad.data, run, lambda: flat._saved_grad_shard)
        gradient, old = flat.grad.data, getattr(flat, "_saved_grad_shard", None)
        self.recorder.see([gradient])
        cut, copies = self.axes[handle]
        addends = self._padded(gradient, handle)
        for axis in [*cut, *copies]:
            words = {"axis": axis, "src": "V", "dst": "P"}
            self.recorder.emit("reinterpret", [addends], [addends], words)
        with self.recorder.hidden():
            run()
        target = flat._saved_grad_shard
        with self.recorder.hidden():
            piece = torch.empty_like(target, dtype=addends.dtype)
        words = {"axis": spec_of([cut])[0], "op": "avg", "dst": "S(0)"}
        self.recorder.emit("reduce_scatter", [addends], [piece], words)
        for axis in copies:
            words = {"axis": axis, "op": "avg", "src": "P", "dst": "R"}
            self.recorder.emit("all_reduce_", [piece], [piece], words, mut=[0])
        if old is not None:
            self.recorder.emit("aten.add_.Tensor", [target, piece], [target], {}, mut=[0])
        elif target.dtype != piece.dtype:
            words = {"dtype": DTYPES[target.dtype]}
            self.recorder.emit("aten._to_copy.default", [piece], [target], words)
        else:
            self.recorder.emit("aten.alias.default", [piece], [target], {})

    def _by_hook(self, gradient: torch.Tensor, run, made) -> None:
        self.recorder.see([gradient])
        with self.recorder.hidden():
            run()
        what = "gradients that a communication hook of FSDP reduces"
        self.recorder.refuse(what, "record it without the hook", [gradient], [made()])

    def _padded(self, gradient: torch.Tensor, handle) -> torch.Tensor:
        short = -gradient.numel() % handle.world_size
        if not short:
            return gradient
        pad = torch.ops.aten.constant_pad_nd.default
        return self.recorder.dispatch(pad, (gradient, [0, short], 0.0), {})

    def average(self, state, handle, run) -> None:
        """Whole gradients, on every rank."""
        gradient = handle.flat_param.grad
        if state._comm_hook is not None:
            return self._by_hook(gradient, run, lambda: handle.flat_param.grad)
        self.recorder.see([gradient])
        with self.recorder.hidden():
            run()
        _, copies = self.axes[handle]
        for axis in copies:
            for name, words in (
                ("reinterpret_", {"src": "V", "dst": "P"}),
                ("all_reduce_", {"op": "avg", "src": "P", "dst": "R"}),
            ):
                self.recorder.emit(name, [gradient], [gradient], {"axis": axis} | words, mut=[0])


@contextlib.contextmanager
def recorded(recorder: Recorder, roots: list[torch.nn.Module]):
    """Records what the wrappers do to parameters, while the context lasts."""
    wrappers = [one for root in roots for one in modules(root) if one._handle is not None]
    calls = _Calls(recorder, {one._handle: _axes(recorder, one) for one in wrappers})
    handles = _flat_param.FlatParamHandle
    gather, reduce = handles._all_gather_flat_param, _runtime_utils._reduce_grad
    average = _runtime_utils._reduce_grad_no_shard

    def all_gather_flat_param(handle, padded):
        if recorder.is_hidden or handle not in calls.axes:
            return gather(handle, padded)
        return calls.gather(handle, lambda: gather(handle, padded))

    def reduce_grad(state, handle):
        if recorder.is_hidden or handle not in calls.axes:
            return reduce(state, handle)
        return calls.reduce(state, handle, lambda: reduce(state, handle))

    def reduce_grad_no_shard(state, handle):
        if recorder.is_hidden or handle not in calls.axes:
            return average(state, handle)
        return calls.average(state, handle, lambda: average(state, handle))

    with (
        replaced(handles, _all_gather_flat_param=all_gather_flat_param),
        replaced(_runtime_utils, _reduce_grad=reduce_grad),
        replaced(_runtime_utils, _reduce_grad_no_shard=reduce_grad_no_shard),
    ):
        yield
