"""What differs between versions of torch, from 2.6 on: the rest of the recorder knows of one torch.

A process group that moves no data gives the results of ranks that all have what this one has. Before
`simulate_uniform_ranks` most of its collectives left their outputs as they were: here they are given.
"""

import contextlib
import functools
import warnings

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FakeProcessGroup, _create_work_from_future

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
    elif _last_reduction is not None:
        found = _last_reduction
    else:
        raise NotImplementedError(f"torch {torch.__version__} does not tell which reduction this is")
    return str(getattr(found, "op", found)).rsplit(".", maxsplit=1)[-1]


_REDUCING = ["allreduce", "allreduce_coalesced", "reduce", "reduce_scatter", "_reduce_scatter_base"]
_REDUCING += ["reduce_scatter_tensor_coalesced"]


def _told(method):
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


def _tell_reductions() -> None:
    if not hasattr(dist.ReduceOp, "unbox"):
        for name in _REDUCING:
            setattr(dist.ProcessGroup, name, _told(getattr(dist.ProcessGroup, name)))


_tell_reductions()


def _reduced(target: torch.Tensor, source: torch.Tensor, size: int, boxed) -> None:
    """What `size` ranks with the same `source` reduce it to."""
    try:
        word = reduction(boxed)
    except NotImplementedError:
        word = "SUM"  # functional collectives of 2.6: of what the numbers are, nothing is recorded
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


def _gather(group, given) -> None:
    for targets, source in zip(given["output_tensors"], given["input_tensors"]):
        for target in targets:
            target.copy_(source)


def _scatter(group, given) -> None:
    for target, sources in zip(given["output_tensors"], given["input_tensors"]):
        target.copy_(sources[group.rank()])


def _gather_coalesced(group, given) -> None:
    for target, source in zip(given["outputs"], given["inputs"]):
        for part in target.view(group.size(), -1):
            part.copy_(source.view(-1))


def _all_to_all(group, given) -> None:
    for target in given["output_tensors"]:
        target.copy_(given["input_tensors"][group.rank()].view_as(target))


def _all_to_all_base(group, given) -> None:
    target, sizes = given["output"], given["output_split_sizes"]
    if sizes and len(set(sizes)) > 1 or target.numel() != given["input"].numel():
        return  # which rows come is not known
    for part in target.view(group.size(), -1):
        part.copy_(_chunk(given["input"], group))


# By operator of c10d; and what it returns beside the handle: the argument, or nothing.
_KERNELS = {
    "allreduce_": (_all_reduce, "tensors"),
    "allreduce_coalesced_": (_all_reduce, None),
    "reduce_": (_reduce, None),
    "reduce_scatter_": (_reduce_scatter, "output_tensors"),
    "_reduce_scatter_base_": (_reduce_scatter_base, "output_tensor"),
    "reduce_scatter_tensor_coalesced_": (_reduce_scatter_coalesced, None),
    "allgather_into_tensor_coalesced_": (_gather_coalesced, None),
    "gather_": (_gather, None),
    "scatter_": (_scatter, "output_tensors"),
    "alltoall_": (_all_to_all, "output_tensors"),
    "alltoall_base_": (_all_to_all_base, None),
}


def _kernel(name: str):
    compute, returned = _KERNELS[name]
    arguments = [one.name for one in getattr(torch.ops.c10d, name).default._schema.arguments]

    def kernel(*args, **kwargs):
        given = dict(zip(arguments, args)) | kwargs
        with torch.no_grad(), torch._C._AutoDispatchBelowAutograd(), torch._C.DisableTorchFunction():
            compute(dist.ProcessGroup.unbox(given["process_group"]), given)
        future = torch.futures.Future()
        future.set_result([])
        work = _create_work_from_future(future).boxed()
        return work if returned is None else (given[returned], work)

    return kernel


@contextlib.contextmanager
def uniform_ranks():
    """Collectives of process groups that move no data give results, for the time of the context."""
    if _UNIFORM:
        yield
        return
    library = torch.library.Library("c10d", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel takes the place of another
        for name in _KERNELS:
            library.impl(name, _kernel(name), "CPU")
    try:
        yield
    finally:
        library._destroy()
