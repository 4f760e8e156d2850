"""The annotations of the package spmd_types as operations of the trace.

Its collectives, conversions and assertions keep their own words; which axes are local, and where
nothing is checked, becomes the context of every operation. What its checker does to find types is
left out of the trace, and what it found is collected for comparison.
"""

import contextlib
import dataclasses

import spmd_types
import torch
from spmd_types import _checker, _collectives, _local, _state, runtime, types

from ..communication.mesh import Context, Mesh
from ..composites import Composites
from ..document import Op
from ..operands import flatten
from ..recorder import Recorder
from ..values import Value
from .cpu import replaced

_reinterpret_mesh = spmd_types.reinterpret_mesh
# What spmd_types.redistribute calls, by the first letters of source and destination.
_REDISTRIBUTE = {
    "SR": "all_gather",
    "SI": "all_gather",
    "VR": "all_gather",
    "VI": "all_gather",
    "PR": "all_reduce",
    "PI": "all_reduce",
    "PS": "reduce_scatter",
    "PV": "reduce_scatter",
    "SS": "all_to_all",
}
# What it converts in expert mode: both types are named, so that they are meant.
_EXPERT = ("RI", "IP", "VP", "SP")
_REDUCTIONS = ("all_reduce", "reduce_scatter")
_TRANSITIONS = {*_REDISTRIBUTE.values(), "convert", "reinterpret", "assert_type", "mutate_type"}
_SPLITS = {"input_split_sizes": "in_splits", "output_split_sizes": "out_splits"}


def _name(function, src: str, dst: str) -> str:
    if function is spmd_types.redistribute:
        return _REDISTRIBUTE.get(src[0] + dst[0], "convert")
    return "convert" if function is spmd_types.invariant_to_replicate else function.__name__


@dataclasses.dataclass
class Found:
    """The type that spmd_types gave to a value: kinds by axis, and a spec if it has one."""

    value: Value
    kinds: dict[str, str]
    spec: list | None


class Words:
    """Records the calls of spmd_types while `recorded` lasts."""

    def __init__(self, recorder: Recorder):
        self.recorder = recorder
        self.found: list[Found] = []
        self._names: dict[str, dict] = {}
        self._chosen: Mesh | None = None
        self._last: dict[Value, dict[str, str]] = {}
        for mesh in recorder.program.meshes:
            axes = {spmd_types.MeshAxis.of(a.size, a.stride): a.name for a in mesh.axes}
            self._names[mesh.name] = {axis: name for axis, name in axes.items() if axis.size() > 1}

    @contextlib.contextmanager
    def recorded(self, functions: Composites):
        for function in _checker._SPMD_FUNCTION_DEFAULTS:
            functions.handlers[function] = self._transition
        infer = _checker._infer_global_output_type

        def hidden_infer(*args, **kwargs):
            with self.recorder.hidden():
                return infer(*args, **kwargs)

        asserting = self._replaced_assert(runtime.assert_type)
        mutating = self._replaced_mutate(runtime.mutate_type)
        mode = _checker._SpmdTypeMode
        with (
            replaced(_checker, _infer_global_output_type=hidden_infer),
            replaced(mode, __torch_function__=self._watched(mode.__torch_function__)),
            replaced(runtime, assert_type=asserting, mutate_type=mutating),
            replaced(spmd_types, assert_type=asserting, mutate_type=mutating),
            replaced(spmd_types, reinterpret_mesh=self._reinterpret_mesh),
            replaced(self.recorder, context=self.context),
        ):
            yield

    @contextlib.contextmanager
    def in_backward(self):
        """Records what the backward of a transition calls: no function mode sees it there."""
        with contextlib.ExitStack() as stack:
            for function in _checker._SPMD_FUNCTION_DEFAULTS:
                recorded = self._recorded_call(function)
                for module in (_collectives, _local):
                    if vars(module).get(function.__name__) is function:
                        stack.enter_context(replaced(module, **{function.__name__: recorded}))
            yield

    def _recorded_call(self, function):
        def call(*args, **kwargs):
            if self.recorder.is_hidden:
                return function(*args, **kwargs)
            return self._transition(function, lambda: function(*args, **kwargs), args, kwargs)

        return call

    # Axes and types in the words of the trace.

    @contextlib.contextmanager
    def on(self, mesh: Mesh):
        """Names axes as those of `mesh`, whatever the program computes on."""
        before, self._chosen = self._chosen, mesh
        try:
            yield
        finally:
            self._chosen = before

    def mesh_with(self, axes) -> Mesh:
        """The first mesh that has all of `axes`."""
        needed = {types.normalize_axis(axis) for axis in axes}
        needed = {axis for axis in needed if axis.size() > 1}
        for mesh in self.recorder.program.meshes:
            if needed <= set(self._names[mesh.name]):
                return mesh
        raise KeyError(f"no mesh has the axes {needed}")

    def mesh(self) -> Mesh:
        """The mesh that the program computes on now."""
        if self._chosen is not None:
            return self._chosen
        if self.recorder.phase == "bwd":
            return self._mesh_of_forward()
        current = _state.current_mesh()
        meshes = self.recorder.program.meshes
        if current is not None:
            for mesh in meshes:
                if current == set(self._names[mesh.name]):
                    return mesh
            raise KeyError(f"the mesh {current} was not declared")
        return meshes[0]

    def _mesh_of_forward(self) -> Mesh:
        """The mesh of the operation whose backward is running."""
        forward = self.recorder.pairing.running_forward()
        return self._mesh_named(forward.context.mesh if forward and forward.context else None)

    def _mesh_of_operands(self, op: Op) -> Mesh:
        """The mesh of the first operand, which an optimizer writes or reads."""
        operands = [value for value in flatten(op.ins) if isinstance(value, Value)]
        return self._mesh_named(operands[0].mesh if operands else None)

    def _mesh_named(self, name: str | None) -> Mesh:
        meshes = self.recorder.program.meshes
        return next((mesh for mesh in meshes if mesh.name == name), meshes[0])

    def context(self, op: Op) -> Context:
        mode, mesh = _state._current_mode(), self.mesh()
        if self.recorder.phase == "opt":
            return self._mesh_of_operands(op).context(local=True)
        if mode is None or self.recorder.phase != "fwd" or self.recorder.functions.opaque:
            return mesh.context(local=True)
        local = mesh.context(mode._local).local
        return Context(mesh.name, local, check=not mode._disabled)

    def axis(self, axis) -> str | None:
        """The name of an axis; None if it has a single rank."""
        axis = types.normalize_axis(axis)
        if axis.size() == 1:
            return None
        names = self._names[self.mesh().name]
        if axis in names:
            return names[axis]
        for mesh, others in self._names.items():
            if axis in others:
                return f"{mesh}.{others[axis]}"
        raise KeyError(f"no mesh has the axis {axis}")

    def kinds(self, local_type: dict) -> dict[str, str]:
        named = {self.axis(axis): kind for axis, kind in local_type.items()}
        order = [a.name for mesh in self.recorder.program.meshes for a in mesh.axes]
        found = {name: repr(kind) for name, kind in named.items() if name is not None}
        return dict(sorted(found.items(), key=lambda item: order.index(item[0].split(".")[-1])))

    def spec(self, spec) -> list | None:
        if spec is None:
            return None
        entries = []
        for entry in spec:
            axes = entry if isinstance(entry, tuple) else () if entry is None else (entry,)
            names = [name for name in map(self.axis, axes) if name is not None]
            entries.append(names if len(names) > 1 else names[0] if names else None)
        return entries

    def type_of(self, tensor: torch.Tensor) -> dict:
        """The type that a tensor has, as claims of a value."""
        local_type = spmd_types.get_local_type(tensor)
        with self.on(self.mesh_with(local_type)):
            claims: dict = {"type": self.kinds(local_type)}
            spec = self.spec(spmd_types.get_partition_spec(tensor))
        return claims | ({"spec": spec} if spec is not None else {})

    # Collectives and conversions.

    def _transition(self, func, run, args, kwargs):
        """One typed operation; what it does to get there is left out."""
        recorder = self.recorder
        tensor = args[0]
        given = dict(_checker._SPMD_FUNCTION_DEFAULTS[func]) | kwargs
        axis = self.axis(args[1] if len(args) > 1 else given["axis"])
        if axis is None:
            return run()
        src = types._canonicalize_shard(given["src"], tensor.ndim)
        known = spmd_types.maybe_get_axis_local_type(tensor, given.get("axis", args[1]))
        if src is types.P and known is types.V and func is not spmd_types.reinterpret:
            self._emit_view("reinterpret", tensor, {"axis": axis}, "V", "P")
        first = recorder.pairing.newest_number() + 1
        operand = recorder.resolve([tensor])
        with recorder.hidden():
            result = run()
            if result is tensor:
                return result
        attrs: dict = {"axis": axis}
        for word in ("src", "dst"):
            attrs[word] = repr(types._canonicalize_shard(given[word], tensor.ndim))
        name = _name(func, attrs["src"], attrs["dst"])
        if recorder.phase == "bwd" and attrs["src"] == "P" and name in _REDUCTIONS:
            del attrs["src"]  # a gradient has no type, and is accepted as it comes
        meant = func is spmd_types.redistribute and attrs["src"][0] + attrs["dst"][0] in _EXPERT
        if given.get("expert_mode") or meant:
            attrs["expert"] = True
        for word in ("gather_dim", "scatter_dim"):
            if given.get(word) is not None:
                attrs["dim"] = given[word]
        for word in ("split_dim", "concat_dim"):
            if given.get(word) is not None:
                attrs[word] = given[word]
        for word, ours in _SPLITS.items():
            if given.get(word) is not None:
                attrs[ours] = list(given[word])
        if given.get("inplace"):
            raise NotImplementedError(f"{func.__name__} in place")
        recorder.emit(name, operand, [result], attrs, first_node=first)
        return result

    def _reinterpret_mesh(self, tensor: torch.Tensor, type, *, inplace: bool = False):
        recorder = self.recorder
        if recorder.is_hidden:
            return _reinterpret_mesh(tensor, type, inplace=inplace)
        first = recorder.pairing.newest_number() + 1
        with recorder.hidden():
            result = _reinterpret_mesh(tensor, type, inplace=inplace)
        mesh = self.mesh_with(spmd_types.get_local_type(result))
        words = {"mesh": mesh.name}
        recorder.emit("reinterpret_mesh", [tensor], [result], words, first_node=first)
        self._note(result)
        return result

    # Assertions.

    def _replaced_assert(self, original):
        def assert_type(tensor, type, partition_spec=None):
            recorder = self.recorder
            if isinstance(tensor, (list, tuple)) or recorder.is_hidden:
                return original(tensor, type, partition_spec)
            before = dict(spmd_types.get_local_type(tensor))
            untyped = not spmd_types.has_local_type(tensor)
            result = original(tensor, type, partition_spec)
            after = spmd_types.get_local_type(tensor)
            for axis, kind in after.items():
                if before.get(axis) is types.V and kind is types.P:
                    self._emit_view("reinterpret", tensor, {"axis": self.axis(axis)}, "V", "P")
            # A parameter of another mesh is asserted before the program gets there.
            with self.on(self.mesh_with(after)):
                claim = self._asserted(tensor, type, partition_spec)
                value = recorder.values.find(tensor)
                if untyped and self._made_unchecked(value):
                    value.claims |= claim
                elif claim["type"]:
                    self._emit_view("assert_type", tensor, claim)
            self._note(tensor)
            return result

        return assert_type

    def _asserted(self, tensor, type, partition_spec) -> dict:
        """The claim that a call of assert_type makes."""
        after = spmd_types.get_local_type(tensor)
        if isinstance(type, types.SpmdType):
            type, partition_spec = type.local_type, type.partition_spec
        if not isinstance(type, dict):
            type = {axis: type for axis in _state.current_mesh()}
        axes = {types.normalize_axis(axis) for axis in type}
        sharded = partition_spec is not None
        sharded |= any(isinstance(kind, types.Shard) for kind in type.values())
        spec = spmd_types.get_partition_spec(tensor) if sharded else None
        for entry in spec or ():
            axes |= set(entry if isinstance(entry, tuple) else () if entry is None else (entry,))
        claim: dict = {"type": self.kinds({a: k for a, k in after.items() if a in axes})}
        return claim | ({"spec": self.spec(spec)} if spec is not None else {})

    def _made_unchecked(self, value: Value | None) -> bool:
        """Whether a value was just made by code that is not checked."""
        made = next((op for op in reversed(self.recorder.program.ops) if value in op.outs), None)
        return made is not None and made.context is not None and not made.context.check

    def _emit_view(self, name: str, tensor: torch.Tensor, attrs: dict, src="", dst="") -> None:
        """An operation whose result is the same tensor under a new name."""
        if src:
            attrs = attrs | {"src": src, "dst": dst}
        self.recorder.emit(name, [tensor], [tensor], attrs)

    def _replaced_mutate(self, original):
        def mutate_type(tensor, axis=None, *, src, dst):
            before = dict(spmd_types.get_local_type(tensor))
            result = original(tensor, axis, src=src, dst=dst)
            if not self.recorder.is_hidden:
                for changed, kind in spmd_types.get_local_type(result).items():
                    if before[changed] is not kind:
                        words = {"axis": self.axis(changed)}
                        self._emit_view(
                            "mutate_type", tensor, words, repr(before[changed]), repr(kind)
                        )
                self._note(tensor)
            return result

        return mutate_type

    # What the checker of spmd_types found.

    def _watched(self, original):
        def watched(mode, func, kinds, args=(), kwargs=None):
            result = original(mode, func, kinds, args, kwargs)
            if not mode._disabled and not self.recorder.is_hidden:
                for tensor in torch.utils._pytree.tree_leaves(result):
                    if isinstance(tensor, torch.Tensor):
                        self._note(tensor)
                        self._state_partial(tensor)
            return result

        return watched

    def _state_partial(self, tensor: torch.Tensor) -> None:
        """States on an operation the sums that its operands' shards leave pending."""
        value, op = self.recorder.values.find(tensor), self.recorder.program.ops[-1]
        if value not in op.outs or op.name in _TRANSITIONS:
            return
        operands = [v for v in flatten(op.ins) if isinstance(v, Value)]
        pending = []
        for name, kind in self.kinds(spmd_types.get_local_type(tensor)).items():
            before = [self._last[v].get(name) for v in operands if v in self._last]
            if kind == "P" and "V" in before and "P" not in before:
                pending.append(name)
        if pending:
            op.attrs["partial"] = pending if len(pending) > 1 else pending[0]

    def _note(self, tensor: torch.Tensor) -> None:
        value = self.recorder.values.find(tensor)
        local_type = spmd_types.get_local_type(tensor)
        if value is not None and local_type:
            claims = self.type_of(tensor)
            self.found.append(Found(value, claims["type"], claims.get("spec")))
            self._last[value] = claims["type"]
