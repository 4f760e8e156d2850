"""The mapping functions of Megatron-Core as typed operations.

Each of its autograd functions that moves between regions is recorded as one operation, forward and
backward, whose kinds are those that its backward determines; so is the communication that its
linear layers do themselves.
"""

import contextlib
import functools

import torch

from ..communication import collectives
from ..hostnumbers import HostSizes
from ..recorder import Recorder
from .cpu import replaced


def _words(op: str, dim: int | None = None, **kinds: str):
    """One row of the table; `dim` may count from the end."""

    def attrs(tensor: torch.Tensor, axis) -> dict:
        result: dict = {"axis": axis}
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


def _axis(recorder: Recorder, group):
    """The axis of a group, or the list of its axes."""
    program = recorder.program
    ranks = torch.distributed.get_process_group_ranks(group)
    axes = program.mesh.axes_of_group(ranks, program.rank)
    if not axes:
        raise NotImplementedError(f"a mapping function over the irregular group {ranks}")
    return axes[0] if len(axes) == 1 else axes


def _typed(recorder: Recorder, row, group, run, tensor: torch.Tensor, splits=None):
    """Runs one direction of a mapping function and records it as the operation of its row."""
    name, attrs = row
    sizes = {} if splits is None else {"splits": splits}
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
    words = attrs(tensor, _axis(recorder, group))
    recorder.emit(name + "_" * in_place, before, [first], words, mut=mut, sizes=sizes)
    return (first, *result[1:]) if isinstance(result, tuple) else first


@contextlib.contextmanager
def typed_mappings(recorder: Recorder):
    """Records the mapping functions as typed operations while the context lasts."""
    from megatron.core.tensor_parallel import layers, mappings
    from megatron.core.transformer.moe import moe_utils

    with contextlib.ExitStack() as stack:
        for name, rows in _ROWS.items():
            function = getattr(mappings, name)
            recorder.functions.transparent.add(function)
            stack.enter_context(_wrapped(recorder, function, *rows))
        recorder.functions.transparent.add(mappings._AllToAll)
        stack.enter_context(_uneven_exchange(recorder, mappings._AllToAll))
        # A plain linear layer in another precision, and an identity.
        recorder.functions.transparent.add(moe_utils.RouterGatingLinearFunction)
        recorder.functions.transparent.add(moe_utils.MoEAuxLossAutoScaler)
        for name in ("LinearWithGradAccumulationAndAsyncCommunication", "LinearWithFrozenWeight"):
            function = getattr(layers, name)
            recorder.functions.transparent.add(function)
            stack.enter_context(_typed_linear(recorder, function))
        yield


def _need_tensor(function: type, sizes: list | None) -> None:
    if sizes is not None and not isinstance(sizes, HostSizes):
        raise NotImplementedError(f"{function.__name__}: sizes that come from no tensor")


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
        splits = next((argument for argument in args if isinstance(argument, list)), None)
        _need_tensor(function, splits)
        row = rows(args[0] if args else True)[0]
        ctx.recorded_group, ctx.recorded_splits = group, splits
        run = functools.partial(original_forward, ctx, input_, group, *args)
        return _typed(recorder, row, group, run, input_, splits)

    def backward(ctx, gradient):
        group = getattr(ctx, "recorded_group", None)
        if group is None:
            return original_backward(ctx, gradient)
        row = rows(getattr(ctx, "tensor_parallel_output_grad", True))[1]
        run = functools.partial(original_backward, ctx, gradient)
        return _typed(recorder, row, group, run, gradient, ctx.recorded_splits)

    return replaced(function, forward=staticmethod(forward), backward=staticmethod(backward))


def _uneven_exchange(recorder: Recorder, function: type):
    """Exchanges whose block sizes the program took from tensors; even ones are raw collectives."""
    original = function.forward

    def forward(ctx, group, input, output_sizes, input_sizes):
        if output_sizes is None or group.size() == 1:
            return original(ctx, group, input, output_sizes, input_sizes)
        _need_tensor(function, output_sizes)
        _need_tensor(function, input_sizes)
        before = recorder.resolve([input])
        with recorder.hidden():
            result = original(ctx, group, input, output_sizes, input_sizes)
        attrs = {"group": collectives.group_key(recorder, group), "split_dim": 0, "concat_dim": 0}
        sizes = {"in_splits": input_sizes, "out_splits": output_sizes}
        recorder.emit("all_to_all", before, [result], attrs, sizes=sizes)
        return result

    return replaced(function, forward=staticmethod(forward))


def _typed_linear(recorder: Recorder, function: type):
    """The linear layer's own communication: a copy into the region, or gather and scatter."""
    original_forward, original_backward = function.forward, function.backward
    frozen = function.__name__ == "LinearWithFrozenWeight"

    def forward(ctx, input, weight, bias, *args):
        allreduce_dgrad = args[0] if frozen else args[1]
        if allreduce_dgrad and args[-1].size() > 1:
            row = _ROWS["_CopyToModelParallelRegion"][0]
            input = _typed(recorder, row, args[-1], lambda: input, input)
        with recorder.stated(all_gather=_TO_R):
            return original_forward(ctx, input, weight, bias, *args)

    def backward(ctx, gradient):
        words = {"all_reduce": _TO_I, "all_gather": _TO_R, "reduce_scatter": {"dst": "S(0)"}}
        with recorder.stated(**words):
            return original_backward(ctx, gradient)

    return replaced(function, forward=staticmethod(forward), backward=staticmethod(backward))
