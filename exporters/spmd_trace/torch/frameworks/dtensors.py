"""What the placements of a DTensor promise: the type of the piece that a rank keeps.

Between steps a parameter is a DTensor on a mesh of the program; the placements say how it is cut.
"""

import contextlib
import functools
import inspect
import math

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.distributed.tensor.placement_types import _StridedShard

from .. import versions
from ..communication import collectives
from ..communication.mesh import spec_of
from ..communication.transitions import DUAL
from ..document import Program
from ..operands import flatten
from ..recorder import Recorder
from ..values import Value
from .cpu import replaced


def axes_of(recorder: Recorder, group) -> list[str]:
    """The axes that a process group runs along, outermost first; none for a single rank."""
    program, ranks = recorder.program, dist.get_process_group_ranks(group)
    if len(ranks) == 1:
        return []
    if (axes := program.mesh.axes_of_group(ranks, program.rank)) is None:
        raise NotImplementedError(f"the ranks {ranks} are no axis of the mesh")
    return [piece for axis in axes for piece in program.mesh.pieces(axis)]


def axes_of_mesh(recorder: Recorder, tensor: DTensor) -> list[str]:
    """The axes that the mesh of a DTensor has."""
    mesh = tensor.device_mesh
    return [axis for dim in range(mesh.ndim) for axis in axes_of(recorder, mesh.get_group(dim))]


def copied(recorder: Recorder, tensor: DTensor) -> set[str]:
    """The axes of its mesh along which all ranks have the whole of a DTensor."""
    mesh, placements = tensor.device_mesh, tensor.placements
    dims = [dim for dim, placement in enumerate(placements) if placement.is_replicate()]
    return {axis for dim in dims for axis in axes_of(recorder, mesh.get_group(dim))}


def _cuts(recorder: Recorder, tensor: DTensor) -> list[list[str]] | None:
    """The axes that cut each dimension, outermost first; None where blocks lie in no such order.

    A strided shard cuts what later dimensions of the mesh have cut into `split_factor` blocks: FSDP
    around tensor parallelism.
    """
    mesh = tensor.device_mesh
    found: list[list[str]] = []
    for dim in range(tensor.dim()):
        order: list[tuple[list[str], int]] = []  # axes, and the number of their ranks
        for place in reversed(range(mesh.ndim)):
            placement = tensor.placements[place]
            if (
                not isinstance(placement, (Shard, _StridedShard))
                or placement.dim % tensor.dim() != dim
            ):
                continue
            blocks = getattr(placement, "split_factor", 1)
            outer = [
                math.prod(size for _, size in order[:count]) for count in range(len(order) + 1)
            ]
            if blocks not in outer:
                return None
            axes = axes_of(recorder, mesh.get_group(place))
            order.insert(outer.index(blocks), (axes, mesh.size(place)))
        found.append([axis for axes, _ in order for axis in axes])
    return found


def pending(recorder: Recorder, tensor: torch.Tensor) -> list[str]:
    """The axes along which a tensor is an addend, such as the momentum of a gradient that nobody
    has summed yet."""
    if not isinstance(tensor, DTensor):
        return []
    mesh, placements = tensor.device_mesh, tensor.placements
    dims = [dim for dim, placement in enumerate(placements) if isinstance(placement, Partial)]
    return [axis for dim in dims for axis in axes_of(recorder, mesh.get_group(dim))]


def claims(recorder: Recorder, tensor: DTensor) -> dict:
    """Type, global shape and gradient contract, and the placements that they follow from."""
    kinds: dict[str, str] = {}
    mesh = tensor.device_mesh
    for dim, placement in enumerate(tensor.placements):
        if isinstance(placement, Partial):
            raise NotImplementedError(f"a parameter that is placed as {placement}")
        kind = "R" if isinstance(placement, Replicate) else "V"
        kinds |= dict.fromkeys(axes_of(recorder, mesh.get_group(dim)), kind)
    cuts = _cuts(recorder, tensor)
    strided = cuts is None
    # Else which ranks differ is stated, and not which part of the whole each has.
    spec = spec_of(cuts) if cuts is not None and any(cuts) else None
    step = {"type": kinds} | ({"spec": spec} if spec else {})
    gradient = step | {"type": {axis: DUAL[kind] for axis, kind in kinds.items()}, "step": step}
    placements = [str(placement) for placement in tensor.placements]
    whole = {} if strided else {"gshape": list(tensor.shape)}
    return step | whole | {"grad": gradient, "x_placements": placements}


def _along_dimension(recorder: Recorder, collective, name: str, place: int):
    """Along another dimension than the first, a collective is one of the first, and copies."""

    @functools.wraps(collective)
    def wrapper(tensor, *args, **kwargs):
        bound = inspect.signature(collective).bind(tensor, *args, **kwargs).arguments
        dim, group = (list(bound.values())[at] for at in (place, place + 1))
        plain = tensor.wait() if isinstance(tensor, AsyncCollectiveTensor) else tensor
        grows = torch.is_grad_enabled() and plain.requires_grad
        if (
            recorder.is_hidden
            or grows
            or isinstance(plain, DTensor)
            or dim % max(plain.dim(), 1) == 0
        ):
            return collective(tensor, *args, **kwargs)
        with recorder.hidden():
            result = collective(plain, *args, **kwargs)
            made = result.wait() if isinstance(result, AsyncCollectiveTensor) else result
        resolved = dist.distributed_c10d._resolve_process_group(
            functional._resolve_group_name(group)
        )
        words = {"group": collectives.group_key(recorder, resolved), "dim": dim % plain.dim()}
        words |= {"op": bound["reduceOp"]} if "reduceOp" in bound else {}
        recorder.emit(name, [plain], [made], words | recorder.words_for(name))
        return made

    return wrapper


# By function that torch calls, the collective and the place of its dimension among the arguments.
_BY_DIMENSION = {
    "all_gather_tensor": ("all_gather", 1),
    "all_gather_single": ("all_gather", 1),
    "reduce_scatter_tensor": ("reduce_scatter", 2),
    "reduce_scatter_single": ("reduce_scatter", 2),
}


# Products that something is added to.
_PRODUCTS = {"aten.addmm.default", "aten.linear.default", "aten.baddbmm.default"}
_PRODUCTS |= {"aten.addmv.default", "aten.addbmm.default"}


@contextlib.contextmanager
def recorded(recorder: Recorder):
    """Records what moves pieces of DTensors as what it is, while the context lasts: a copy that
    becomes addends is divided by the ranks, and a gather along a dimension is made of several
    operations. What an operation makes of shapes, DTensor finds by running it on whole tensors
    without values, which is no part of the program.
    """
    partition = Partial._partition_value
    shapes_of = getattr(ShardingPropagator, versions.SHAPES_OF)

    def hidden_shapes(propagator, schema):
        with recorder.hidden():
            return shapes_of(propagator, schema)

    def _partition_value(placement, tensor, mesh, mesh_dim):
        axes = axes_of(recorder, mesh.get_group(mesh_dim))
        if recorder.is_hidden or placement.reduce_op != "sum" or not axes:
            return partition(placement, tensor, mesh, mesh_dim)
        with recorder.hidden():
            result = partition(placement, tensor, mesh, mesh_dim)
        words = {"axis": spec_of([axes])[0], "dst": "P", "expert": True}
        recorder.emit("convert", [tensor], [result], words)
        return result

    known = {name: how for name, how in _BY_DIMENSION.items() if hasattr(functional, name)}
    wrapped = {
        name: _along_dimension(recorder, getattr(functional, name), *how)
        for name, how in known.items()
    }
    with (
        replaced(Partial, _partition_value=_partition_value),
        replaced(ShardingPropagator, **{versions.SHAPES_OF: hidden_shapes}),
        replaced(functional, **wrapped),
    ):
        yield


def state_sums(program: Program) -> None:
    """DTensor makes a copy addends to add it to addends: what else the operation takes is a product
    over a dimension that is cut, and its result is pending.
    """
    axes = {}
    for op in program.ops:
        taken = [one for one in flatten(op.ins) if isinstance(one, Value)]
        found = [axes[id(one)] for one in taken if id(one) in axes]
        if op.name == "convert" and op.attrs.get("dst") == "P" and op.attrs.get("expert"):
            axes |= {id(one): op.attrs["axis"] for one in op.outs}
        elif found and len(taken) == 1:  # a view
            axes |= {id(one): found[0] for one in op.outs}
        elif found and op.name in _PRODUCTS:
            op.attrs["partial"] = found[0]
