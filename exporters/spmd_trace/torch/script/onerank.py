"""A script of several ranks on one: meshes and groups have no other rank, and a loader that hands
each rank its share of a dataset makes batches of all shares together.
"""

import contextlib
import functools

import torch
import torch.distributed as dist
from torch.distributed import device_mesh
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler

from ..frameworks.cpu import replaced
from .world import everywhere


@contextlib.contextmanager
def noted(samplers: list[int]):
    """Notes over how many ranks each sampler deals a dataset out."""
    init = DistributedSampler.__init__

    @functools.wraps(init)
    def __init__(sampler, *args, **kwargs):
        init(sampler, *args, **kwargs)
        samplers.append(sampler.num_replicas)

    with replaced(DistributedSampler, __init__=__init__):
        yield


@contextlib.contextmanager
def alone(samplers: list[int]):
    """`samplers`: what was `noted` where all ranks run."""
    with contextlib.ExitStack() as stack:
        _groups(stack)
        _meshes(stack)
        _loaders(stack, iter(samplers))
        yield


def _groups(stack: contextlib.ExitStack) -> None:
    new = dist.new_group

    @functools.wraps(new)
    def new_group(ranks=None, *args, **kwargs):
        if ranks is not None and 0 not in (ranks := list(ranks)):
            return dist.GroupMember.NON_GROUP_MEMBER
        return new(ranks and [0], *args, **kwargs)

    everywhere(stack, new, new_group)


def _meshes(stack: contextlib.ExitStack) -> None:
    make, init = device_mesh.init_device_mesh, device_mesh.DeviceMesh.__init__

    @functools.wraps(make)
    def init_device_mesh(device_type, mesh_shape, *args, **kwargs):
        return make(device_type, (1,) * len(mesh_shape), *args, **kwargs)

    @functools.wraps(init)
    def __init__(made, device_type, mesh=None, *args, **kwargs):
        if mesh is not None:
            mesh = torch.as_tensor(mesh)
            mesh = mesh[(slice(1),) * mesh.dim()]
        init(made, device_type, mesh, *args, **kwargs)

    everywhere(stack, make, init_device_mesh)
    stack.enter_context(replaced(device_mesh.DeviceMesh, __init__=__init__))


def _loaders(stack: contextlib.ExitStack, samplers) -> None:
    load, init = DataLoader.__init__, DistributedSampler.__init__
    shares: dict[DistributedSampler, int] = {}

    @functools.wraps(init)
    def __init__(sampler, *args, **kwargs):
        init(sampler, *args, **kwargs)
        shares[sampler] = next(samplers, 1)

    @functools.wraps(load)
    def of_all_shares(self, dataset, batch_size=1, shuffle=None, sampler=None, *args, **kwargs):
        batches = kwargs.get("batch_sampler", args[0] if args else None)
        if sampler in shares and batch_size is not None:
            batch_size *= shares[sampler]
        elif type(batches) is BatchSampler and batches.sampler in shares:
            batches.batch_size *= shares[batches.sampler]
        load(self, dataset, batch_size, shuffle, sampler, *args, **kwargs)

    stack.enter_context(replaced(DistributedSampler, __init__=__init__))
    stack.enter_context(replaced(DataLoader, __init__=of_all_shares))
