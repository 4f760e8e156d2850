"""Torch's data parallelism: whole parameters on every rank, and gradients that a hook averages.

Its reducer copies gradients to buckets, reduces these, and copies back, below the operations of the
program. What is recorded is what that does to each gradient, where backward ends.
"""

import contextlib

import torch

from ..mesh import spec_of
from ..recorder import Recorder
from ..values import Value
from .cpu import replaced
from .dtensors import axes_of


def claims(recorder: Recorder, ddp: torch.nn.parallel.DistributedDataParallel) -> dict:
    """Type and gradient contract of every parameter that the wrapper reduces."""
    axes = axes_of(recorder, ddp.process_group)
    step = {"type": dict.fromkeys(axes, "R")}
    origin = {"op": "avg", "origin": "DistributedDataParallel"}
    return step | {
        "grad": {"type": dict.fromkeys(axes, "P"), "step": step},
        "x_reductions": [{"axis": axis} | origin for axis in axes],
    }


def declare(recorder: Recorder, ddp) -> dict[torch.nn.Parameter, Value]:
    """Declares the parameters of a wrapped model."""
    found = claims(recorder, ddp)
    return {
        parameter: recorder.declare(parameter, "param", name, **found)
        for name, parameter in ddp.module.named_parameters()
    }


@contextlib.contextmanager
def recorded(recorder: Recorder, ddp):
    """Records the averages of gradients while the context lasts, which the recording is inside."""
    if ddp._comm_hooks:
        raise NotImplementedError("gradients that a communication hook reduces")
    ddp.reducer._rebuild_buckets()  # as the first forward that sees all gradients ready would
    forward, backward = ddp.forward, recorder.backward
    waiting = False  # for a backward whose gradients are reduced

    def forward_alone(*args, **kwargs):
        nonlocal waiting
        waiting = ddp.require_backward_grad_sync and torch.is_grad_enabled()
        with replaced(ddp, require_backward_grad_sync=False):
            return forward(*args, **kwargs)

    def backward_and_reduction(loss, **options):
        backward(loss, **options)
        if waiting:
            _average(recorder, ddp)

    with replaced(ddp, forward=forward_alone), replaced(recorder, backward=backward_and_reduction):
        yield


def _average(recorder: Recorder, ddp) -> None:
    axes = axes_of(recorder, ddp.process_group)
    with recorder.section("gradients", "opt"):
        for parameter in ddp.module.parameters():
            if axes and parameter.grad is not None:
                gradient, place = parameter.grad, {"axis": spec_of([axes])[0]}
                addends = place | {"src": "V", "dst": "P"}
                recorder.emit("reinterpret_", [gradient], [gradient], addends, mut=[0])
                words = place | {"op": "avg", "src": "P", "dst": "R"}
                recorder.emit("all_reduce_", [gradient], [gradient], words, mut=[0])
