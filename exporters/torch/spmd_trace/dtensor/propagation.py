"""Asks DTensor, on a process group that only pretends to have other ranks."""

import dataclasses
import math

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import _StridedShard
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ..operands import bind
from ..values import DTYPES
from .samples import Case, Sample

MESHES = {"m4": {"tp": 4}, "m22": {"dp": 2, "tp": 2}}
RANKS = 4


def meshes() -> dict[str, DeviceMesh]:
    """The meshes as DTensor knows them; needs a default process group of `RANKS` ranks."""
    return {
        name: init_device_mesh("cpu", tuple(axes.values()), mesh_dim_names=tuple(axes))
        for name, axes in MESHES.items()
    }


def placement(word: str):
    """`R`, `P` or `S(dim)` as DTensor's object."""
    if word in ("R", "P"):
        return Replicate() if word == "R" else Partial()
    return Shard(int(word[2:-1]))


def word(found) -> str:
    """A placement of DTensor in a word; what our words lack keeps its class name."""
    if isinstance(found, _StridedShard):
        return f"_StridedShard({found.dim}, {found.split_factor})"
    if isinstance(found, Shard):
        return f"S({found.dim})"
    if isinstance(found, Replicate):
        return "R"
    if type(found) is Partial:
        return "P" if found.reduce_op == "sum" else f"P({found.reduce_op})"
    return type(found).__name__


def _words(spec: DTensorSpec) -> tuple[str, ...]:
    return tuple(word(found) for found in spec.placements)


class _Collectives(TorchDispatchMode):
    """Notes the collectives that run inside."""

    def __init__(self):
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(issubclass(one, DTensor) for one in types):
            return NotImplemented
        if "c10d" in func.namespace or func.namespace == "_dtensor":
            self.seen.append(func._schema.name)
        return func(*args, **(kwargs or {}))


@dataclasses.dataclass
class Decision:
    """What DTensor does with one call.

    verdict: `keeps`, `redistributes` or `error`; wanted: the placements it runs on.
    calls: the call on local tensors, operands named `%0`, `%1` ..; where DTensor does not keep the
    operands and sizes are arguments, one call for each way in which they could be the local ones.
    """

    verdict: str
    wanted: tuple[tuple[str, ...], ...] | None
    results: list[dict | None]
    calls: list[dict]
    error: str = ""


class Asked:
    """One case with placements on one mesh, as DTensors of this rank."""

    def __init__(self, case: Case, mesh: DeviceMesh, assignment):
        self.case, self._mesh = case, mesh
        self.operands: list[dict] = []
        placed = iter(assignment)

        def place(leaf):
            return self._distributed(leaf, next(placed)) if isinstance(leaf, Sample) else leaf

        self._args = pytree.tree_map(place, case.args)
        self._kwargs = pytree.tree_map(place, case.kwargs)

    def _distributed(self, sample: Sample, words: tuple[str, ...]) -> DTensor:
        placements = tuple(placement(one) for one in words)
        shape = torch.Size(sample.shape)
        local, _ = compute_local_shape_and_global_offset(shape, self._mesh, placements)
        strides = torch.empty(shape, dtype=sample.dtype, device="meta").stride()
        meta = TensorMeta(shape, strides, sample.dtype)
        spec = DTensorSpec(self._mesh, placements, tensor_meta=meta)
        entry = {"dtype": DTYPES[sample.dtype], "shape": list(sample.shape)}
        self.operands.append(entry | {"local": list(local), "at": list(words)})
        return DTensor(sample.tensor(local), spec, requires_grad=False)

    def _schema(self):
        dispatcher = DTensor._op_dispatcher
        return dispatcher.unwrap_to_op_info(self.case.op, self._args, self._kwargs).schema

    def suggestion(self) -> tuple[tuple[str, ...], ...] | None:
        """The placements that DTensor would run on; None if it would not run."""
        try:
            schema = self._schema()
            sharding = DTensor._op_dispatcher.sharding_propagator.propagate_op_sharding(schema)
        except Exception:  # what DTensor raises for what it cannot shard is of many types
            return None
        return _placements(sharding.redistribute_schema or schema)

    def decide(self) -> Decision:
        """The decision, and for operands that are kept the call that a rank makes."""
        schema = self._schema()
        whole = _local_calls(self.case, schema, self.operands)
        try:
            sharding = DTensor._op_dispatcher.sharding_propagator.propagate_op_sharding(schema)
        except Exception as error:
            return Decision("error", None, [], whole, _first_line(error))
        wanted = _placements(sharding.redistribute_schema or schema)
        if wanted != _placements(schema):
            return Decision("redistributes", wanted, [], whole)
        results = _specs_told(sharding.output_spec)
        if self.case.runs:
            collectives = _Collectives()
            try:
                with torch.no_grad(), collectives:
                    found = self.case.op(*self._args, **self._kwargs)
            except Exception as error:
                return Decision("error", None, [], whole, _first_line(error))
            if collectives.seen:
                return Decision("redistributes", wanted, [], whole, " ".join(collectives.seen))
            results = _tensors_told(found)
        uses_values = sharding.use_val_from_redistribute_schema
        local = sharding.redistribute_schema if uses_values else schema
        return Decision("keeps", wanted, results, [_call(self.case.op, local)])


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"


def _specs(tree) -> list[DTensorSpec]:
    leaves = pytree.tree_leaves(tree, is_leaf=lambda leaf: isinstance(leaf, DTensorSpec))
    return [leaf for leaf in leaves if isinstance(leaf, DTensorSpec)]


def _placements(schema) -> tuple[tuple[str, ...], ...]:
    return tuple(_words(spec) for spec in _specs((schema.args_schema, schema.kwargs_schema)))


def _call(op, schema) -> dict:
    """The call as a trace writes it, operands numbered in the order of the arguments."""
    count = -1

    def name(leaf):
        nonlocal count
        if not isinstance(leaf, DTensorSpec):
            return leaf
        count += 1
        return f"%{count}"

    is_spec = lambda leaf: isinstance(leaf, DTensorSpec)  # noqa: E731
    args = pytree.tree_map(name, tuple(schema.args_schema), is_leaf=is_spec)
    kwargs = pytree.tree_map(name, schema.kwargs_schema, is_leaf=is_spec)
    bound = bind(op, args, kwargs)
    call = {"in": bound.ins, "attrs": bound.attrs, "mut": bound.written}
    return {key: value for key, value in call.items() if value}


def _local_calls(case: Case, schema, operands: list[dict]) -> list[dict]:
    """The calls of a rank that DTensor did not settle."""
    sizes_at = DTensor._op_dispatcher.sharding_propagator.op_to_shape_and_stride_idx
    call = _call(case.op, schema)
    position = sizes_at.get(case.op)
    if not isinstance(position, int):
        return [call]
    name = case.op._schema.arguments[position].name
    sizes = call["attrs"][name]
    cut = math.prod(operands[0]["shape"]) // max(math.prod(operands[0]["local"]), 1)
    return [
        call | {"attrs": call["attrs"] | {name: local}} for local in _divided(tuple(sizes), cut)
    ]


def _divided(sizes: tuple[int, ...], cut: int) -> list[list[int]]:
    """The sizes with a factor `cut` taken out of one dimension or, in halves, out of two."""
    found = []
    for halves in ((cut,), (2, cut // 2)) if cut == RANKS else ((cut,),):
        ways = {tuple(sizes)}
        for half in halves:
            ways = {
                (*way[:i], extent // half, *way[i + 1 :])
                for way in ways
                for i, extent in enumerate(way)
                if extent > 0 and extent % half == 0
            }
        found += sorted(ways)
    unique = list(dict.fromkeys(found)) or [sizes]
    return [list(way) for way in unique]


def _specs_told(output) -> list[dict | None]:
    """Results by their specs, where nothing ran."""
    told: list[dict | None] = []
    for spec in output if isinstance(output, (list, tuple)) else [output]:
        if spec is None or spec.tensor_meta is None:
            told.append(None)
            continue
        meta = spec.tensor_meta
        shape = meta.shape
        local, _ = compute_local_shape_and_global_offset(shape, spec.mesh, spec.placements)
        told.append({"dtype": DTYPES[meta.dtype], "local": list(local), "at": list(_words(spec))})
    return told


def _tensors_told(found) -> list[dict | None]:
    """Results as they are; None for what is no distributed tensor."""
    told: list[dict | None] = []
    for tensor in _flat(found):
        if not isinstance(tensor, DTensor):
            told.append(None)
            continue
        entry = {"dtype": DTYPES[tensor.dtype], "local": list(tensor._local_tensor.shape)}
        told.append(entry | {"at": list(_words(tensor._spec))})
    return told


def _flat(found) -> list:
    if isinstance(found, (list, tuple)):
        return [leaf for one in found for leaf in ([None] if one is None else _flat(one))]
    return [] if found is None else [found]
