"""What the placements of a DTensor promise: the type of the piece that a rank keeps.

Between steps a parameter is a DTensor on a mesh of the program; the placements say how it is cut.
"""

import contextlib

import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from ..mesh import spec_of
from ..recorder import Recorder
from ..transitions import DUAL
from .cpu import replaced


def axes_of(recorder: Recorder, group) -> list[str]:
    """The axes that a process group runs along, outermost first; none for a single rank."""
    program, ranks = recorder.program, dist.get_process_group_ranks(group)
    if len(ranks) == 1:
        return []
    if (axes := program.mesh.axes_of_group(ranks, program.rank)) is None:
        raise NotImplementedError(f"the ranks {ranks} are no axis of the mesh")
    return [piece for axis in axes for piece in program.mesh.pieces(axis)]


def claims(recorder: Recorder, tensor: DTensor) -> dict:
    """Type, global shape and gradient contract, and the placements that they follow from."""
    kinds: dict[str, str] = {}
    cuts: list[list[str]] = [[] for _ in tensor.shape]
    mesh, strided = tensor.device_mesh, False
    for dim, placement in enumerate(tensor.placements):
        axes = axes_of(recorder, mesh.get_group(dim))
        if isinstance(placement, Partial):
            raise NotImplementedError(f"a parameter that is placed as {placement}")
        strided = strided or isinstance(placement, _StridedShard)
        if isinstance(placement, Shard):
            cuts[placement.dim] += axes
        kinds |= dict.fromkeys(axes, "R" if isinstance(placement, Replicate) else "V")
    # Blocks of blocks: which ranks differ is stated, and not which part of the whole each has.
    spec = None if strided or not any(cuts) else spec_of(cuts)
    step = {"type": kinds} | ({"spec": spec} if spec else {})
    gradient = step | {"type": {axis: DUAL[kind] for axis, kind in kinds.items()}, "step": step}
    placements = [str(placement) for placement in tensor.placements]
    whole = {} if strided else {"gshape": list(tensor.shape)}
    return step | whole | {"grad": gradient, "x_placements": placements}


@contextlib.contextmanager
def recorded(recorder: Recorder):
    """Records a copy that becomes addends as that, while the context lasts: DTensor divides it by the ranks."""
    partition = Partial._partition_value

    def _partition_value(placement, tensor, mesh, mesh_dim):
        axes = axes_of(recorder, mesh.get_group(mesh_dim))
        if recorder.is_hidden or placement.reduce_op != "sum" or not axes:
            return partition(placement, tensor, mesh, mesh_dim)
        with recorder.hidden():
            result = partition(placement, tensor, mesh, mesh_dim)
        words = {"axis": spec_of([axes])[0], "src": "R", "dst": "P", "expert": True}
        recorder.emit("convert", [tensor], [result], words)
        return result

    with replaced(Partial, _partition_value=_partition_value):
        yield
