"""What differs between versions of torch, from 2.6 on: the rest of the recorder knows of one torch.

A process group that moves no data gives the results of ranks that all have what this one has.
Before `simulate_uniform_ranks` most of its collectives left their outputs as they were: here they
are given.
"""

import contextlib
import dataclasses
import functools
import inspect
import warnings

import torch
import torch.cpu
import torch.distributed as dist
import torch.distributed.fsdp
from torch._C._distributed_c10d import FakeProcessGroup, _create_work_from_future
from torch.distributed.fsdp._fully_shard import _fsdp_collectives as collectives
from torch.distributed.tensor._sharding_prop import ShardingPropagator

from .operands import flatten

_UNIFORM = hasattr(FakeProcessGroup.Options, "simulate_uniform_ranks")


def fake_options():
    """Of a process group that moves no data."""
    if not _UNIFORM:
        return None
    options = FakeProcessGroup.Options()
    options.simulate_uniform_ranks = True
    return options


_last_reduction = None  # of the call that is running, where the operator's argument is closed


def reduction(boxed) -> str:
    """The name of a reduction as operators of c10d have it, such as SUM."""
    if hasattr(dist.ReduceOp, "unbox"):
        found = dist.ReduceOp.unbox(boxed).op
    elif hasattr(boxed, "op"):
        found = dist.ReduceOp.RedOpType(boxed.op())
    else:
        # Below Python 2.6 has the sums of DistributedDataParallel and functional collectives, which
        # say by themselves what they are.
        found = _last_reduction or dist.ReduceOp.SUM
    return str(getattr(found, "op", found)).rsplit(".", maxsplit=1)[-1]


_REDUCING = ["allreduce", "allreduce_coalesced", "reduce", "reduce_scatter", "_reduce_scatter_base"]
_REDUCING += ["reduce_scatter_tensor_coalesced"]


def _noting_reduction(method):
    """A method of a process group that notes its reduction, which stands in its options."""

    @functools.wraps(method)
    def wrapper(*args, **kwargs):
        global _last_reduction
        given = [*args, *kwargs.values()]
        known = [getattr(one, "reduceOp", one) for one in given]
        asked = [one for one in known if isinstance(one, (dist.ReduceOp, dist.ReduceOp.RedOpType))]
        before, _last_reduction = _last_reduction, (*asked, dist.ReduceOp.SUM)[0]
        try:
            return method(*args, **kwargs)
        finally:
            _last_reduction = before

    return wrapper


def _complete() -> None:
    """Adds what the oldest versions lack."""
    if not hasattr(dist.ReduceOp, "unbox"):
        for name in _REDUCING:
            setattr(dist.ProcessGroup, name, _noting_reduction(getattr(dist.ProcessGroup, name)))
    _complete_sharding()


def _complete_sharding() -> None:
    """What FSDP2 of 2.6 needs where it runs on a CPU."""
    for name in ("record_event", "wait_event"):
        if not hasattr(torch.cpu.Stream, name):
            setattr(torch.cpu.Stream, name, lambda stream, *events: torch.cpu.Event())
    copy_out = collectives.foreach_all_gather_copy_out
    if "_unsafe_preserve_version_counter" in inspect.unwrap(copy_out).__code__.co_names:
        return

    packet = torch.ops.fsdp.split_with_sizes_copy
    copy = packet._op

    def split_with_sizes_copy(*args, out, **kwargs):
        # A parameter that is gathered again is what it was: on a CPU the copy would count as a
        # write.
        with contextlib.ExitStack() as kept:
            for tensor in out:
                kept.enter_context(torch.autograd._unsafe_preserve_version_counter(tensor))
            copy(*args, out=out, **kwargs)

    packet._op = split_with_sizes_copy


_complete()


def held(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Those of the tensors that the garbage collector knows of behind which there still is one,
    kept alive."""
    found = []
    for tensor in tensors:
        tensor._fix_weakref()  # else what is behind it may go first
        try:
            found += [tensor] if tensor.device else []
        except RuntimeError:  # it has gone: the shell of a tensor, as 2.6 leaves them
            continue
    return found


# The method by which DTensor finds what an operation makes of shapes.
SHAPES_OF = (
    "_propagate_tensor_meta_non_cached"
    if hasattr(ShardingPropagator, "_propagate_tensor_meta_non_cached")
    else "_propagate_tensor_meta"
)


def sharded_groups(state) -> list:
    """The groups of parameters that one module of FSDP2 gathers."""
    if hasattr(state, "_fsdp_param_groups"):
        return state._fsdp_param_groups
    return [state._fsdp_param_group] if state._fsdp_param_group is not None else []


@dataclasses.dataclass
class ShardedReduction:
    """What FSDP2 knows of one reduction of gradients."""

    dtype: torch.dtype
    divisor: float | None  # a number in place of that of the ranks
    replicas: dist.ProcessGroup | None
    all_replicas: bool  # reduce over them now
    by_hand: bool  # in a way that only the program knows


def sharded_reduction(reduce, *args, **kwargs) -> ShardedReduction:
    """Reads the arguments of a call of `foreach_reduce` of FSDP2."""
    bound = inspect.signature(reduce).bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    return ShardedReduction(
        given["reduce_dtype"] or given["unsharded_grads"][0].dtype,
        given.get("gradient_divide_factor"),
        given["all_reduce_group"],
        given["all_reduce_grads"],
        given.get("all_reduce_hook") is not None
        or given.get("reduce_scatter_reduce_op") is not None,
    )


@contextlib.contextmanager
def sharded_sums():
    """FSDP2 reduces gradients by sums and divides by itself: gloo cannot multiply while it adds."""
    from torch.distributed.fsdp._fully_shard import _fsdp_collectives as module

    name, word = "_get_gradient_divide_factors", "force_sum_reduction_for_comms"
    original = getattr(module, name)
    if word not in inspect.signature(original).parameters:  # a version that always does so
        yield
        return

    def divide_factors(*args, **kwargs):
        bound = inspect.signature(original).bind(*args, **kwargs)
        bound.arguments[word] = True
        return original(*bound.args, **bound.kwargs)

    setattr(module, name, divide_factors)
    try:
        yield
    finally:
        setattr(module, name, original)


def _reduced(target: torch.Tensor, source: torch.Tensor, size: int, boxed) -> None:
    """What `size` ranks with the same `source` reduce it to."""
    word = reduction(boxed)
    target.copy_(source)
    if word == "SUM":
        target.mul_(size)
    elif word == "PRODUCT":
        target.pow_(size)


def _chunk(tensor: torch.Tensor, group) -> torch.Tensor:
    return tensor.reshape(-1).chunk(group.size())[group.rank()]


def _all_reduce(group, given) -> None:
    for one in given["tensors"]:
        _reduced(one, one.clone(), group.size(), given["reduce_op"])


def _reduce(group, given) -> None:
    if group.rank() == given["root_rank"]:
        _all_reduce(group, given)


def _reduce_scatter(group, given) -> None:
    for target, sources in zip(given["output_tensors"], given["input_tensors"]):
        _reduced(target, sources[group.rank()], group.size(), given["reduce_op"])


def _reduce_scatter_base(group, given) -> None:
    target = given["output_tensor"]
    source = _chunk(given["input_tensor"], group).view_as(target)
    _reduced(target, source, group.size(), given["reduce_op"])


def _reduce_scatter_coalesced(group, given) -> None:
    for target, source in zip(given["outputs"], given["inputs"]):
        one = {"output_tensor": target, "input_tensor": source}
        _reduce_scatter_base(group, given | one)


def _broadcast(group, given) -> None:
    """What one rank has, all have."""


def _gather(group, given) -> None:
    for targets, source in zip(given["output_tensors"], given["input_tensors"]):
        for target in targets:
            target.copy_(source)


def _scatter(group, given) -> None:
    for target, sources in zip(given["output_tensors"], given["input_tensors"]):
        target.copy_(sources[group.rank()])


def _gather_base(group, given) -> None:
    for part in given["output_tensor"].view(group.size(), -1):
        part.copy_(given["input_tensor"].reshape(-1))


def _gather_coalesced(group, given) -> None:
    for target, source in zip(given["outputs"], given["inputs"]):
        _gather_base(group, {"output_tensor": target, "input_tensor": source})


def _all_to_all(group, given) -> None:
    for target in given["output_tensors"]:
        target.copy_(given["input_tensors"][group.rank()].view_as(target))


def _all_to_all_base(group, given) -> None:
    target, sizes = given["output"], given["output_split_sizes"]
    if sizes and len(set(sizes)) > 1 or target.numel() != given["input"].numel():
        return  # which rows come is not known
    for part in target.view(group.size(), -1):
        part.copy_(_chunk(given["input"], group))


# By operator of c10d, and the argument that it writes.
_KERNELS = {
    "allreduce_": (_all_reduce, "tensors"),
    "allreduce_coalesced_": (_all_reduce, "tensors"),
    "reduce_": (_reduce, "tensors"),
    "reduce_scatter_": (_reduce_scatter, "output_tensors"),
    "_reduce_scatter_base_": (_reduce_scatter_base, "output_tensor"),
    "reduce_scatter_tensor_coalesced_": (_reduce_scatter_coalesced, "outputs"),
    "broadcast_": (_broadcast, "tensors"),
    "allgather_": (_gather, "output_tensors"),
    "_allgather_base_": (_gather_base, "output_tensor"),
    "allgather_into_tensor_coalesced_": (_gather_coalesced, "outputs"),
    "gather_": (_gather, "output_tensors"),
    "scatter_": (_scatter, "output_tensors"),
    "alltoall_": (_all_to_all, "output_tensors"),
    "alltoall_base_": (_all_to_all_base, "output"),
}


@functools.cache
def _finished():
    """Begins a future that has the tensors it is given, which code below Python can read."""

    def same(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        return tensors

    return functools.partial(torch.jit.fork, torch.jit.script(same))


def _work(*results):
    """The handle of a collective that is done; of several results, the first that is there."""
    found = ([one for one in flatten([part]) if isinstance(one, torch.Tensor)] for part in results)
    future = _finished()(next(filter(None, found)))
    future.wait()
    return work_of(future).boxed()


def work_of(future: torch.futures.Future) -> dist.Work:
    """The handle of a call whose results are those of a future."""
    return _create_work_from_future(future)


def _exchange(group, given) -> None:
    """Blocks of a list, which gloo of older versions does not send, as those of one tensor."""
    sent, received = given["input_tensors"], given["output_tensors"]
    target = received[0].new_empty(sum(one.numel() for one in received))
    source = torch.cat([one.reshape(-1) for one in sent])
    sizes = [[one.numel() for one in blocks] for blocks in (received, sent)]
    group.alltoall_base(target, source, *sizes).wait()
    for one, block in zip(received, target.split(sizes[0])):
        one.copy_(block.view_as(one))


def _kernel(name: str, compute, written: str):
    schema = getattr(torch.ops.c10d, name).default._schema
    arguments = [one.name for one in schema.arguments]

    def kernel(*args, **kwargs):
        given = dict(zip(arguments, args)) | kwargs
        with (
            torch.no_grad(),
            torch._C._AutoDispatchBelowAutograd(),
            torch._C.DisableTorchFunction(),
        ):
            compute(dist.ProcessGroup.unbox(given["process_group"]), given)
            work = _work(given[written], list(given.values()))
        return work if len(schema.returns) == 1 else (given[written], work)

    return kernel


def done(func, given: dict, tensors: list[torch.Tensor]):
    """What a collective returns that has moved no data."""
    returns = len(func._schema.returns)
    work = _work(tensors)
    if returns == 1:
        return work
    written = _KERNELS.get(func._schema.name.removeprefix("c10d::"), (None, None))[1]
    return given.get(written, tensors), work


@contextlib.contextmanager
def _computed_by(kernels: dict):
    """Collectives are computed by these, for the time of the context."""
    library = torch.library.Library("c10d", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel takes the place of another
        for name, of in kernels.items():
            library.impl(name, _kernel(name, *of), "CPU")
    try:
        yield
    finally:
        library._destroy()


def uniform_ranks():
    """Collectives of process groups that move no data give results, for the time of the context."""
    return contextlib.nullcontext() if _UNIFORM else _computed_by(_KERNELS)


def exchanged_lists():
    """Ranks that run together exchange lists of blocks in all versions, for the time of the
    context."""
    return _computed_by({"alltoall_": (_exchange, "output_tensors")})
