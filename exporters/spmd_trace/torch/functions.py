"""Custom autograd functions: their bodies run without gradient mode, their results have one.

A body is recorded as a section without gradients whose last word is the function's own backward,
unless the function is declared transparent: then its body is differentiated like any other code.
"""

import contextlib
import dataclasses

import torch


@dataclasses.dataclass
class _Frame:
    grad: bool
    transparent: bool


class FunctionFrames:
    """The custom functions that are running, outermost first."""

    def __init__(self) -> None:
        self.transparent: set[type] = set()
        self._frames: list[_Frame] = []
        self._calls = 0

    @property
    def inside(self) -> bool:
        return bool(self._frames)

    @property
    def call(self) -> int | None:
        """The number of the outermost call that is running."""
        return self._calls if self._frames else None

    @property
    def opaque(self) -> bool:
        """Whether code runs whose backward is a function's own."""
        return not all(frame.transparent for frame in self._frames)

    def grad_mode(self, enabled: bool) -> bool:
        if not self._frames:
            return enabled
        return all(frame.grad and frame.transparent for frame in self._frames)

    @contextlib.contextmanager
    def entered(self, function: type):
        transparent = function in self.transparent
        if not self._frames:
            self._calls += 1
        self._frames.append(_Frame(self.grad_mode(torch.is_grad_enabled()), transparent))
        try:
            yield
        finally:
            self._frames.pop()


_recorders: list = []  # active ones
_ORIGINAL = torch.autograd.Function.__dict__["apply"]


def apply(cls, *args, **kwargs):  # spmd_types goes by its name
    with contextlib.ExitStack() as stack:
        for recorder in _recorders:
            recorder.function_called(args)
            stack.enter_context(recorder.functions.entered(cls))
        return _ORIGINAL.__get__(None, cls)(*args, **kwargs)


# From the first import on, not only while a program is recorded: scripts keep the `apply` of their
# functions in variables of their own.
torch.autograd.Function.apply = classmethod(apply)


@contextlib.contextmanager
def watched(recorder):
    """Tells the recorder when a custom function begins and ends, while the context lasts."""
    _recorders.append(recorder)
    try:
        yield
    finally:
        _recorders.pop()
