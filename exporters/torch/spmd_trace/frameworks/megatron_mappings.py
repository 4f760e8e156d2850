"""The mapping functions of Megatron-Core as typed operations.

Each of its autograd functions that moves between regions is recorded as one operation, forward and
backward, whose kinds are those that its backward determines; so is the communication that its
linear layers do themselves.
"""

import contextlib

import torch

from ..recorder import Recorder
from .cpu import replaced


def _words(op: str, dim: int | None = None, **kinds: str):
    """One row of the table: an operation over tp; `dim` may count from the end."""

    def attrs(tensor: torch.Tensor) -> dict:
        result: dict = {"axis": "tp"}
        if op in ("all_reduce", "reduce_scatter"):
            result["op"] = "sum"
        if dim is not None and op != "convert":
            result["dim"] = dim % tensor.dim()
        for word, kind in kinds.items():
            result[word] = f"S({dim % tensor.dim()})" if kind == "S" else kind
        return result

    return op, attrs


_LAST = -1
_TO_I = {"dst": "I"}
_TO_R = {"dst": "R"}
_ROWS = {
    "_CopyToModelParallelRegion": (
        _words("convert", src="I", dst="R"),
        _words("all_reduce", **_TO_I),
    ),
    "_ReduceFromModelParallelRegion": (
        _words("all_reduce", **_TO_I),
        _words("reinterpret", src="I", dst="R"),
    ),
    "_ScatterToModelParallelRegion": (
        _words("convert", _LAST, src="I", dst="S"),
        _words("all_gather", _LAST, **_TO_I),
    ),
    "_ScatterToSequenceParallelRegion": (
        _words("convert", 0, src="I", dst="S"),
        _words("all_gather", 0, **_TO_I),
    ),
    "_GatherFromModelParallelRegion": (
        _words("all_gather", _LAST, **_TO_I),
        _words("convert", _LAST, src="I", dst="S"),
    ),
    "_GatherFromSequenceParallelRegion": (
        _words("all_gather", 0, **_TO_R),
        _words("reduce_scatter", 0, dst="S"),
    ),
    "_ReduceScatterToSequenceParallelRegion": (
        _words("reduce_scatter", 0, dst="S"),
        _words("all_gather", 0, **_TO_R),
    ),
    "_AllGatherFromTensorParallelRegion": (
        _words("all_gather", _LAST, **_TO_R),
        _words("reduce_scatter", _LAST, dst="S"),
    ),
    "_ReduceScatterToTensorParallelRegion": (
        _words("reduce_scatter", _LAST, dst="S"),
        _words("all_gather", _LAST, **_TO_R),
    ),
}
# The same gather where the consumers of its result are not divided over the ranks.
_GATHER_WHOLE = (_words("all_gather", 0, **_TO_I), _words("convert", 0, src="I", dst="S"))


def _typed(recorder: Recorder, row, run, tensor: torch.Tensor):
    """Runs one direction of a mapping function and records it as the operation of its row."""
    name, attrs = row
    in_place = name == "all_reduce"
    if in_place and not tensor.is_contiguous():
        return run()
    before = recorder.resolve([tensor])
    with recorder.hidden():
        result = run()
        first = result[0] if isinstance(result, tuple) else result
        if first is tensor and not in_place:
            first = tensor.view_as(tensor)
    mut = [0] if in_place else []
    recorder.emit(name + "_" * in_place, before, [first], attrs(tensor), mut=mut)
    return (first, *result[1:]) if isinstance(result, tuple) else first


@contextlib.contextmanager
def typed_mappings(recorder: Recorder):
    """Records the mapping functions as typed operations while the context lasts."""
    from megatron.core.tensor_parallel import layers, mappings

    with contextlib.ExitStack() as stack:
        for name, rows in _ROWS.items():
            function = getattr(mappings, name)
            recorder.functions.transparent.add(function)
            stack.enter_context(_wrapped(recorder, function, *rows))
        # Its collective is recorded as it is called, in both directions.
        recorder.functions.transparent.add(mappings._AllToAll)
        for name in ("LinearWithGradAccumulationAndAsyncCommunication", "LinearWithFrozenWeight"):
            function = getattr(layers, name)
            recorder.functions.transparent.add(function)
            stack.enter_context(_typed_linear(recorder, function))
        yield


def _wrapped(recorder: Recorder, function: type, forward_row, backward_row):
    """Replaces both directions of a mapping function by their recorded forms."""
    original_forward, original_backward = function.forward, function.backward
    is_gather = function.__name__ == "_GatherFromSequenceParallelRegion"

    def rows(tensor_parallel_output_grad: bool):
        if is_gather and not tensor_parallel_output_grad:
            return _GATHER_WHOLE
        return forward_row, backward_row

    def forward(ctx, input_, group, *args):
        if group.size() == 1:
            return original_forward(ctx, input_, group, *args)
        if any(isinstance(argument, (list, tuple)) for argument in args):
            raise NotImplementedError(f"{function.__name__}: uneven splits are not recorded")
        row = rows(args[0] if args else True)[0]
        return _typed(recorder, row, lambda: original_forward(ctx, input_, group, *args), input_)

    def backward(ctx, gradient):
        if getattr(ctx, "group", None) is not None and ctx.group.size() == 1:
            return original_backward(ctx, gradient)
        row = rows(getattr(ctx, "tensor_parallel_output_grad", True))[1]
        return _typed(recorder, row, lambda: original_backward(ctx, gradient), gradient)

    return replaced(function, forward=staticmethod(forward), backward=staticmethod(backward))


def _typed_linear(recorder: Recorder, function: type):
    """The linear layer's own communication: a copy into the region, or gather and scatter."""
    original_forward, original_backward = function.forward, function.backward
    frozen = function.__name__ == "LinearWithFrozenWeight"

    def forward(ctx, input, weight, bias, *args):
        allreduce_dgrad = args[0] if frozen else args[1]
        if allreduce_dgrad and args[-1].size() > 1:
            row = _ROWS["_CopyToModelParallelRegion"][0]
            input = _typed(recorder, row, lambda: input, input)
        with recorder.stated(all_gather=_TO_R):
            return original_forward(ctx, input, weight, bias, *args)

    def backward(ctx, gradient):
        words = {"all_reduce": _TO_I, "all_gather": _TO_R, "reduce_scatter": {"dst": "S(0)"}}
        with recorder.stated(**words):
            return original_backward(ctx, gradient)

    return replaced(function, forward=staticmethod(forward), backward=staticmethod(backward))
