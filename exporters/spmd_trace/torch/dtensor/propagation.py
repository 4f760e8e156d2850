"""Asks DTensor, on a process group that only pretends to have other ranks."""

import dataclasses
import math

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
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
    results: written operands first, as a trace has them; where and how large if it keeps.
    """

    verdict: str
    wanted: tuple[tuple[str, ...], ...] | None
    results: list[dict]
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
        calls = _local_calls(self.case, schema, self.operands)
        written = _written(calls[0])
        returned = _returned(self.case)
        results = [{"shape": self.operands[i]["shape"], "of": i} for i in written]
        results += [{"shape": shape} for shape in returned.values()]
        try:
            sharding = DTensor._op_dispatcher.sharding_propagator.propagate_op_sharding(schema)
        except Exception as error:
            return Decision("error", None, results, calls, _first_line(error))
        wanted = _placements(sharding.redistribute_schema or schema)
        if wanted != _placements(schema):
            return Decision("redistributes", wanted, results, calls)
        found = sharding.output_spec
        if _does_more_than_its_rule(self.case.op):
            try:
                found, collectives = self._run()
            except Exception as error:
                return Decision("error", None, results, calls, _first_line(error))
            if collectives:
                return Decision("redistributes", wanted, results, calls, " ".join(collectives))
        placed = self._results(found)
        results = [entry | where for entry, where in zip(results, placed, strict=True)]
        uses_values = sharding.use_val_from_redistribute_schema
        local = sharding.redistribute_schema if uses_values else schema
        return Decision("keeps", wanted, results, [_call(local)])

    def run(self) -> tuple[list[dict], list[str]]:
        """The results of really running the call, and the collectives that it ran."""
        found, collectives = self._run()
        return self._results(found), collectives

    def _run(self):
        collectives = _Collectives()
        with torch.no_grad(), collectives:
            return self.case.op(*self._args, **self._kwargs), collectives.seen

    def _results(self, found) -> list[dict]:
        """Where the results are, written operands first; `found` are tensors or their specs."""
        written = _written(_call(self._schema()))
        placed = [{key: self.operands[i][key] for key in ("local", "at")} for i in written]
        leaves = pytree.tree_leaves([found], is_leaf=_is_spec)
        return placed + [_placed(leaves[position]) for position in _returned(self.case)]


def _does_more_than_its_rule(op: torch._ops.OpOverload) -> bool:
    """Whether DTensor runs a function of its own, or the pieces of a composite."""
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    handlers = DTensor._op_dispatcher._custom_op_handlers
    return op in handlers or torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), composite)


def _placed(result) -> dict:
    """Local extents and placements of a result; empty for what has none, such as a seed."""
    if isinstance(result, DTensor):
        return {"local": list(result._local_tensor.shape), "at": list(_words(result._spec))}
    if not _is_spec(result):
        return {}
    shape = result.tensor_meta.shape
    local, _ = compute_local_shape_and_global_offset(shape, result.mesh, result.placements)
    return {"local": list(local), "at": list(_words(result))}


def _written(call: dict) -> list[int]:
    """The operands that a call writes, by number."""
    leaves = pytree.tree_leaves([call["in"][i] for i in call.get("mut", [])])
    return [int(leaf[1:]) for leaf in leaves if isinstance(leaf, str)]


def _returned(case: Case) -> dict[int, list[int]]:
    """Position and global extents of the tensors that a call returns and has not written."""
    if case.name not in _KNOWN_RESULTS:
        with FakeTensorMode():
            args, kwargs = pytree.tree_map(_whole, (case.args, case.kwargs))
            given = pytree.tree_leaves((args, kwargs))
            found = pytree.tree_leaves([case.op(*args, **kwargs)])
        _KNOWN_RESULTS[case.name] = {
            position: list(tensor.shape)
            for position, tensor in enumerate(found)
            if isinstance(tensor, torch.Tensor) and not any(tensor is one for one in given)
        }
    return _KNOWN_RESULTS[case.name]


_KNOWN_RESULTS: dict[str, dict[int, list[int]]] = {}


def _whole(leaf):
    return torch.empty(leaf.shape, dtype=leaf.dtype) if isinstance(leaf, Sample) else leaf


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"


def _is_spec(leaf) -> bool:
    return isinstance(leaf, DTensorSpec)


def _placements(schema) -> tuple[tuple[str, ...], ...]:
    leaves = pytree.tree_leaves((schema.args_schema, schema.kwargs_schema), is_leaf=_is_spec)
    return tuple(_words(leaf) for leaf in leaves if _is_spec(leaf))


def _call(schema) -> dict:
    """The call as a trace writes it, operands numbered in the order of the arguments."""
    count = -1

    def name(leaf):
        nonlocal count
        if not _is_spec(leaf):
            return leaf
        count += 1
        return f"%{count}"

    args = pytree.tree_map(name, tuple(schema.args_schema), is_leaf=_is_spec)
    kwargs = pytree.tree_map(name, schema.kwargs_schema, is_leaf=_is_spec)
    bound = bind(schema.op, args, kwargs)
    call = {"op": str(schema.op), "in": bound.ins, "attrs": bound.attrs, "mut": bound.written}
    return {key: value for key, value in call.items() if value}


def _local_calls(case: Case, schema, operands: list[dict]) -> list[dict]:
    """The calls of a rank that DTensor did not settle."""
    sizes_at = DTensor._op_dispatcher.sharding_propagator.op_to_shape_and_stride_idx
    call = _call(schema)
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
