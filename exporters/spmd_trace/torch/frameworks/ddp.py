"""Torch's data parallelism: whole parameters on every rank, and gradients that a hook averages.

Its reducer copies gradients to buckets, reduces these, and copies back, below the operations of the
program. What is recorded is what that does to each gradient, where backward ends.
"""

import contextlib
import sys
import weakref

import torch
import torch.distributed as dist

from ..communication.mesh import spec_of
from ..recorder import Recorder, unrecorded
from ..values import Value
from .cpu import replaced
from .dtensors import axes_of


# By wrapper: the parameters that it reduces, by identity.
_BUILT: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def built(ddp) -> None:
    """Notes which parameters a wrapper reduces, fixed when it is built: those that ask for a
    gradient then.
    """
    ignored = set(ddp.parameters_to_ignore)
    known = [one for name, one in ddp.module.named_parameters() if name not in ignored]
    _BUILT[ddp] = {id(one) for one in known if one.requires_grad}


def reduced(ddp) -> list[torch.nn.Parameter]:
    """The parameters whose gradients the wrapper averages."""
    parameters = list(ddp.module.parameters())
    return [one for one in parameters if id(one) in _BUILT.get(ddp, {id(one)})]


@contextlib.contextmanager
def _touched(ddp):
    """The parameters of a wrapper that get a gradient while the context lasts, by identity."""
    found: set[int] = set()
    trained = [one for one in reduced(ddp) if one.requires_grad and one.is_leaf]
    note = [one.register_post_accumulate_grad_hook(lambda p: found.add(id(p))) for one in trained]
    try:
        yield found
    finally:
        for each in note:
            each.remove()


def claims(recorder: Recorder, ddp: torch.nn.parallel.DistributedDataParallel) -> dict:
    """Type and gradient contract of every parameter that the wrapper reduces."""
    axes = axes_of(recorder, ddp.process_group)
    step = {"type": dict.fromkeys(axes, "R")}
    origin = {"op": "avg", "origin": "DistributedDataParallel"}
    known = [] if ddp._comm_hooks else [{"axis": axis} | origin for axis in axes]
    contract = {"type": dict.fromkeys(axes, "P"), "step": step}
    return step | {"grad": contract} | ({"x_reductions": known} if known else {})


def declare(recorder: Recorder, ddp) -> dict[torch.nn.Parameter, Value]:
    """Declares the parameters of a wrapped model."""
    found = claims(recorder, ddp)
    return {
        parameter: recorder.declare(parameter, "param", name, **found)
        for name, parameter in ddp.module.named_parameters()
    }


class _Reducer:
    """The reducer of a wrapper, which never hears that a backward comes, and so does nothing with
    its gradients: who tells it, and when, is the business of the wrapper and of packages around it.
    """

    def __init__(self, reducer):
        self._reducer, self.waits = reducer, False

    def __getattr__(self, name: str):
        return getattr(self._reducer, name)

    def prepare_for_backward(self, outputs) -> None:
        self.waits = True


@contextlib.contextmanager
def recorded(recorder: Recorder, ddp):
    """Records the averages of gradients while the context lasts, which the recording is inside."""
    ddp.reducer._rebuild_buckets()  # as the first forward that sees all gradients ready would
    backward, reducer = recorder.backward, _Reducer(ddp.reducer)
    bypassed: list[str] = []  # where the program has called the module by itself

    def forward_of_module(*_):
        if not _is_running(ddp):
            bypassed.append(recorder.program.locations.text(recorder.program.locations.here()))

    def backward_and_reduction(loss, **options):
        with _touched(ddp) as touched:
            backward(loss, **options)
        _hint(recorder, ddp, touched, None if reducer.waits else _remedy(bypassed))
        if not (reducer.waits and touched):
            return
        reducer.waits = False
        if ddp._comm_hooks:
            _by_hook(recorder, ddp, touched, *ddp._comm_hooks[-1])
        else:
            _average(recorder, ddp, touched)

    hook = ddp.module.register_forward_pre_hook(forward_of_module)
    try:
        with replaced(ddp, reducer=reducer), replaced(recorder, backward=backward_and_reduction):
            yield
    finally:
        hook.remove()


def _is_running(ddp) -> bool:
    """Whether the wrapper has been called and has not returned."""
    forward, frame = type(ddp).forward.__code__, sys._getframe(1)
    while frame is not None:
        if frame.f_code is forward and frame.f_locals.get("self") is ddp:
            return True
        frame = frame.f_back
    return False


def _remedy(bypassed: list[str]) -> str:
    """What the program has to do for its gradients to be averaged."""
    wrapper = "DistributedDataParallel"
    if bypassed and (place := bypassed[-1].removesuffix(": ")):
        instead = "which averages gradients only where it is called itself"
        return f"{place} calls the module inside of {wrapper}, {instead}"
    return f"{wrapper} averages gradients only where it is called itself, outside of no_sync()"


def _hint(recorder: Recorder, ddp, touched: set[int], text: str | None) -> None:
    """Says of parameters that got gradients why these are not averaged; None: they are."""
    axes = axes_of(recorder, ddp.process_group)
    for parameter in reduced(ddp):
        value = recorder.values.find(parameter) if id(parameter) in touched else None
        if value is None or "grad" not in value.root.claims:
            continue
        contract = {k: v for k, v in value.root.claims["grad"].items() if k != "hints"}
        hints = [{"axis": axis, "text": text} for axis in axes] if text else []
        value.root.claims["grad"] = contract | ({"hints": hints} if hints else {})


def _average(recorder: Recorder, ddp, touched: set[int]) -> None:
    axes = axes_of(recorder, ddp.process_group)
    with recorder.section("gradients", "opt"):
        for parameter in reduced(ddp):
            if axes and id(parameter) in touched:
                gradient = parameter.grad
                _state_addends(recorder, gradient, axes)
                words = {"axis": spec_of([axes])[0], "op": "avg", "src": "P", "dst": "R"}
                recorder.emit("all_reduce_", [gradient], [gradient], words, mut=[0])
    with unrecorded(), torch.no_grad():
        _take_average(ddp, touched)


def _take_average(ddp, touched: set[int]) -> None:
    """What the reducer would do: where the ranks of a job run together, the steps after this one
    start from what it computes. A rank that has not used a parameter has zeros for it."""
    trained = reduced(ddp)
    used = [id(one) in touched and one.grad.layout is torch.strided for one in trained]
    users = torch.tensor(used, dtype=torch.float32)
    dist.all_reduce(users, group=ddp.process_group)
    for parameter, own, any_rank in zip(trained, used, users.tolist()):
        if any_rank:
            addend = parameter.grad if own else torch.zeros_like(parameter)
            dist.all_reduce(addend, group=ddp.process_group)
            addend /= dist.get_world_size(ddp.process_group)


def _state_addends(recorder: Recorder, gradient: torch.Tensor, axes: list[str]) -> None:
    """Ranks with batches of their own have addends of a gradient."""
    words = {"axis": spec_of([axes])[0], "src": "V", "dst": "P"}
    recorder.emit("reinterpret_", [gradient], [gradient], words, mut=[0])


class _Bucket:
    """One gradient, as a communication hook asks for it."""

    def __init__(self, parameter: torch.nn.Parameter, index: int, last: bool):
        self._parameter, self._index, self._last = parameter, index, last
        self._buffer = torch.cat([parameter.grad.view(-1)])

    def buffer(self) -> torch.Tensor:
        return self._buffer

    def set_buffer(self, buffer: torch.Tensor) -> None:
        self._buffer = buffer

    def gradients(self) -> list[torch.Tensor]:
        return [self._buffer.view(self._parameter.shape)]

    def parameters(self) -> list[torch.nn.Parameter]:
        return [self._parameter]

    def index(self) -> int:
        return self._index

    def is_last(self) -> bool:
        return self._last


def _by_hook(recorder: Recorder, ddp, touched: set[int], hook, state) -> None:
    """The hook of the program reduces each gradient: a bucket may hold any number of them."""
    axes = axes_of(recorder, ddp.process_group)
    trained = [one for one in reduced(ddp) if id(one) in touched]
    with recorder.section("gradients", "opt"), torch.no_grad():
        for place, parameter in enumerate(trained):
            gradient = parameter.grad
            if axes:
                _state_addends(recorder, gradient, axes)
            bucket = _Bucket(parameter, place, place == len(trained) - 1)
            try:
                result = hook(state, bucket).wait()
            except (RuntimeError, LookupError, TypeError, ValueError) as error:
                # What a hook keeps from step to step may be about the buckets that torch makes.
                name = getattr(hook, "__name__", type(hook).__name__)
                words = f"the communication hook {name} does not take gradients one by one: {error}"
                recorder.refuse(words, "record it without the hook", [gradient], [gradient])
                continue
            result = result[0] if isinstance(result, (list, tuple)) else result
            parameter.grad = result.view_as(gradient).to(gradient.dtype)
