"""Typed transitions that the recorded program states itself, with their backward.

`reinterpret` keeps the bytes and says what they mean from here on, for example that the losses of
the data-parallel ranks are addends of one loss.
"""

import torch

from .. import recorder as recording

# The kind of the gradient of a value of each kind.
DUAL = {"R": "P", "P": "R", "I": "I", "V": "V"}
_EXPERT = {("R", "I"), ("R", "V"), ("R", "P"), ("I", "P")}


def _emit(tensor: torch.Tensor, axis: str, src: str, dst: str) -> torch.Tensor:
    recorder = recording.active()
    if recorder is None:
        return tensor.view_as(tensor)
    with recorder.hidden():
        result = tensor.view_as(tensor)
    attrs = {"axis": axis, "src": src, "dst": dst}
    if (src, dst) in _EXPERT:
        attrs["expert"] = True
    recorder.emit("reinterpret", [tensor], [result], attrs)
    return result


class _Reinterpret(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, axis, src, dst):
        ctx.words = (axis, DUAL[dst], DUAL[src])
        return _emit(tensor, axis, src, dst)

    @staticmethod
    def backward(ctx, gradient):
        return _emit(gradient, *ctx.words), None, None, None


def reinterpret(tensor: torch.Tensor, axis: str, src: str, dst: str) -> torch.Tensor:
    """The same bytes with another meaning on `axis`; a no-op outside a recording."""
    recorder = recording.active()
    if recorder is None:
        return tensor
    recorder.functions.transparent.add(_Reinterpret)
    return _Reinterpret.apply(tensor, axis, src, dst)
