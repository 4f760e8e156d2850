"""Collectives as torch.distributed issues them: process groups, in-place and output arguments.

They carry no kinds, so the trace leaves `src` and `dst` open unless the enclosing framework code
determines them. Waiting for an asynchronous call is not an operation: the result is ready at once.
"""

import contextlib

import torch
import torch.distributed as dist

from .. import versions
from ..document import Op
from ..hostnumbers import HostSizes
from ..operands import flatten
from . import collective_lists, messages

_REDUCTIONS = {"SUM": "sum", "AVG": "avg", "MAX": "max", "MIN": "min", "PRODUCT": "prod"}
_REDUCTIONS |= {"BAND": "and", "BOR": "or", "BXOR": "xor"}


_averages = False  # whether the sum that is called is to become an average


@contextlib.contextmanager
def averaging():
    """What is called inside is an average, which the processes of a host take by a sum."""
    global _averages
    _averages = True
    try:
        yield
    finally:
        _averages = False


def reduction(given) -> str:
    """The name in torch of what a collective reduces by."""
    return "AVG" if _averages else versions.reduction(given)


def group_key(recorder, group: dist.ProcessGroup) -> str:
    """Files the group in the table of groups under its description, and returns that key."""
    program = recorder.program
    ranks = dist.get_process_group_ranks(group)
    entry: dict = {"ranks": list(ranks)}
    for mesh in program.meshes:
        if axes := mesh.axes_of_group(ranks, program.rank):
            entry = {"mesh": mesh.name, "axes": axes}
            break
    key = group.group_desc if group.group_desc not in ("", "undefined") else group.group_name
    if program.groups.setdefault(key, entry) != entry:
        key = f"{key}.{group.group_name}"
        program.groups[key] = entry
    return key


def record(recorder, func, args, kwargs):
    """Records one `c10d` call and runs it."""
    given = {a.name: v for a, v in zip(func._schema.arguments, args)} | kwargs
    name = func._schema.name.removeprefix("c10d::")
    if name in ("barrier", "monitored_barrier_"):
        return func(*args, **kwargs)
    group = dist.ProcessGroup.unbox(given["process_group"])
    if name in _MESSAGES:
        # Nobody waits here: the other rank may first want to send.
        recorder.see(given["tensors"])
        with recorder.hidden():
            result = func(*args, **kwargs)
        _MESSAGES[name](recorder, given, group)
        return result
    attrs: dict = {}
    if group.size() > 1:
        attrs["group"] = group_key(recorder, group)
    if "reduce_op" in given:
        attrs["op"] = _REDUCTIONS[reduction(given["reduce_op"])]
    # What it overwrites is what it was, and what it gives is there.
    recorder.see(flatten(list(given.values())))
    if name in ("allreduce_", "allreduce_coalesced_"):
        recorder.on_summed(given["tensors"])
    with recorder.hidden():
        result = func(*args, **kwargs)
        _work(result).wait()
    if name not in _HANDLERS:
        _refuse(recorder, func, given, f"the recorder does not know the collective {func}")
    elif group.size() > 1:
        try:
            _HANDLERS[name](recorder, given | {"size": group.size()}, attrs)
        except NotImplementedError as error:
            _refuse(recorder, func, given, str(error))
    elif name in _ALONE:
        for target, source in _ALONE[name](given):
            collective_lists.write(recorder, target, source)
    return result


_REMEDY = "write it by collectives of one tensor, such as all_gather_into_tensor"


def _refuse(recorder, func, given: dict, what: str) -> None:
    """A collective that no operation of a trace is."""

    def is_written(argument) -> bool:
        # The schema cannot say it of lists of lists.
        marked = argument.alias_info is not None and argument.alias_info.is_write
        return argument.name in given and (marked or argument.name.startswith("output"))

    written = [given[one.name] for one in func._schema.arguments if is_written(one)]
    recorder.refuse(what, _REMEDY, list(given.values()), written)


def _work(result) -> dist.Work:
    """The handle of a call, which stands last in what it returns."""
    return dist.Work.unbox(result[-1] if isinstance(result, (list, tuple)) else result)


def _in_place(recorder, name: str, tensors: list[torch.Tensor], attrs: dict) -> None:
    parts = [part for tensor in tensors for part in recorder.pieces(tensor) or [tensor]]
    operand = parts if len(parts) > 1 else parts[0]
    attrs |= recorder.words_for(name)
    recorder.emit(name + "_", [operand], parts, attrs, mut=[0])


def _into(recorder, name: str, source, target: torch.Tensor, attrs: dict) -> None:
    """A collective that overwrites an output buffer."""
    attrs |= {"dim": 0} | recorder.words_for(name)
    _write(recorder, name, source, target, attrs)


def _write(recorder, name: str, source, target: torch.Tensor, attrs: dict) -> None:
    buffer = recorder.current(target)
    op = Op(name, recorder.resolve([source]), [], attrs, {"out": buffer})
    op.outs = [recorder.values.define(target, buffer, written=True)]
    recorder.add(op)


def _all_reduce(recorder, given, attrs):
    _in_place(recorder, "all_reduce", given["tensors"], attrs)


def _broadcast(recorder, given, attrs):
    attrs["root"] = given["root_rank"]
    _in_place(recorder, "broadcast", given["tensors"], attrs)


def _all_gather(recorder, given, attrs):
    _into(recorder, "all_gather", given["input_tensor"], given["output_tensor"], attrs)


def _reduce_scatter(recorder, given, attrs):
    _into(recorder, "reduce_scatter", given["input_tensor"], given["output_tensor"], attrs)


def _reduce(recorder, given, attrs):
    attrs["root"] = given["root_rank"]
    _in_place(recorder, "reduce", given["tensors"], attrs)


_SPLITS = (("in_splits", "input_split_sizes"), ("out_splits", "output_split_sizes"))


def _splits(given) -> dict:
    return {word: list(given[name]) for word, name in _SPLITS if given.get(name)}


def _all_to_all(recorder, given, attrs):
    attrs |= _splits(given) | {"split_dim": 0, "concat_dim": 0} | recorder.words_for("all_to_all")
    _write(recorder, "all_to_all", given["input"], given["output"], attrs)


def even(numbers: list | None) -> bool:
    """Whether blocks have these numbers of rows because all blocks have as many."""
    return not isinstance(numbers, HostSizes) and len(set(numbers or [])) < 2


def record_uneven(recorder, operands: list, output: torch.Tensor, sizes: dict, group) -> None:
    """Records an exchange of blocks whose rows are counted, which has filled `output`.

    `sizes`: lists of numbers, or what the program took from tensors.
    """
    attrs: dict = {"split_dim": 0, "concat_dim": 0} | recorder.words_for("all_to_all")
    if dist.get_world_size(group) > 1:
        attrs["group"] = group_key(recorder, group or dist.group.WORLD)
    named = {word: one for word, one in sizes.items() if isinstance(one, HostSizes)}
    attrs |= {word: list(one) for word, one in sizes.items() if one and word not in named}
    op = Op("all_to_all", operands, [], attrs, {"out": recorder.current(output)})
    op.kw |= {word: recorder.current(numbers.tensor) for word, numbers in named.items()}
    op.outs = [recorder.values.define(output, op.kw["out"], written=True)]
    recorder.add(op)


def _each(handler):
    def coalesced(recorder, given, attrs):
        for source, target in zip(given["inputs"], given["outputs"]):
            one = {"input_tensor": source, "output_tensor": target}
            handler(recorder, one, dict(attrs))

    return coalesced


_HANDLERS = {
    "allreduce_": _all_reduce,
    "allreduce_coalesced_": _all_reduce,
    "broadcast_": _broadcast,
    "reduce_": _reduce,
    "alltoall_base_": _all_to_all,
    "_allgather_base_": _all_gather,
    "_reduce_scatter_base_": _reduce_scatter,
    "allgather_into_tensor_coalesced_": _each(_all_gather),
    "reduce_scatter_tensor_coalesced_": _each(_reduce_scatter),
} | collective_lists.HANDLERS

_MESSAGES = {"send": messages.send}
_MESSAGES |= dict.fromkeys(["recv_", "recv_any_source_"], messages.receive)

# What a rank that is alone in its group copies: targets and sources.
_ALONE = {
    "alltoall_base_": lambda given: [(given["output"], given["input"])],
    "alltoall_": lambda given: zip(given["output_tensors"], given["input_tensors"]),
    "allgather_coalesced_": lambda given: zip(given["output_lists"][0], given["input_list"]),
}
_ALONE |= dict.fromkeys(
    ["_allgather_base_", "_reduce_scatter_base_", "gather_into_tensor_"],
    lambda given: [(given["output_tensor"], given["input_tensor"])],
)
_ALONE |= dict.fromkeys(
    ["allgather_into_tensor_coalesced_", "reduce_scatter_tensor_coalesced_"],
    lambda given: zip(given["outputs"], given["inputs"]),
)
_ALONE |= dict.fromkeys(
    ["allgather_", "gather_"],
    lambda given: [(ts[0], s) for ts, s in zip(given["output_tensors"], given["input_tensors"])],
)
_ALONE |= dict.fromkeys(
    ["reduce_scatter_", "scatter_"],
    lambda given: [(t, ss[0]) for t, ss in zip(given["output_tensors"], given["input_tensors"])],
)


# The functional forms return their result; waiting for it gives the same value.
_FUNCTIONAL = {
    "all_reduce": ("all_reduce", {}),
    "all_gather_into_tensor": ("all_gather", {"dim": 0}),
    "reduce_scatter_tensor": ("reduce_scatter", {"dim": 0}),
    "all_to_all_single": ("all_to_all", {"split_dim": 0, "concat_dim": 0}),
    "broadcast": ("broadcast", {}),
}


def record_functional(recorder, func, args, kwargs):
    """Records one `_c10d_functional` call and runs it."""
    given = {a.name: v for a, v in zip(func._schema.arguments, args)} | kwargs
    name = func._schema.name.split("::")[1]
    with recorder.hidden():
        result = func(*args, **kwargs)
    if name in ("wait_tensor", "wait_tensors", "_wrap_tensor_autograd"):
        # On fake tensors the newest torch makes another one, which nobody would know. The wrapper
        # that would wait when it is used is left out.
        (waited,) = given.values()
        with recorder.hidden():
            for one in waited if isinstance(waited, list) else [waited]:
                torch.ops._c10d_functional.wait_tensor(one)
        return waited
    buffer, name = given.get("out"), name.removesuffix("_out")
    in_place, name = name.endswith("_"), name.removesuffix("_")
    several, name = name.endswith("_coalesced"), name.removesuffix("_coalesced")
    if name not in _FUNCTIONAL:
        what = f"the recorder does not know the collective {func}"
        recorder.refuse(what, _REMEDY, list(given.values()), [result])
        return result
    word, attrs = _FUNCTIONAL[name]
    group = given["group_name"]
    if isinstance(group, str):
        group = dist.distributed_c10d._resolve_process_group(group)
    splits = _splits(given)
    sizes = recorder.host.sizes_of(splits)
    attrs = {"group": group_key(recorder, group)} | attrs | ({} if sizes else splits)
    attrs |= recorder.words_for(word)
    if "reduce_op" in given:
        attrs["op"] = given["reduce_op"].lower().replace("product", "prod")
    if name == "broadcast":
        attrs["root"] = given["src"]
    sources = given["inputs"] if several else [given["input"]]
    for source, target in zip(sources, result if several else [result]):
        if buffer is not None:
            _write(recorder, word, source, target, dict(attrs))
        elif in_place:
            recorder.emit(word + "_", [source], [target], dict(attrs), mut=[0])
        else:
            recorder.emit(word, [source], [target], dict(attrs), sizes=sizes)
    return result
