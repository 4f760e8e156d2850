"""The recorder: turns every operation that torch dispatches into an operation of the trace.

It stands below autograd, so forward, backward, hooks and the optimizer are all seen. Writes become
new values, views name their base, and a view that was overwritten through another one is derived
again by an `alias` operation when it is used.
"""

import contextlib
import dataclasses
from collections.abc import Callable

import torch
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from . import functions, hostnumbers, operands, locations, views
from .communication import collectives
from .communication.mesh import Context, Mesh
from .document import RESIZED, Op, Program
from .pairing import Pairing
from .values import DTYPES, Value, ValueTable

# Wrappers: what they do to the tensors inside is dispatched again.
_WRAPPERS = (DTensor, AsyncCollectiveTensor)

_active: "Recorder | None" = None


def active() -> "Recorder | None":
    """The recorder that is running in this process and not hidden, if any."""
    return _active if _active is not None and not _active.is_hidden else None


@contextlib.contextmanager
def unrecorded():
    """Leaves out of the recording, if one is running, what is no part of the program."""
    with active().hidden() if active() is not None else contextlib.nullcontext():
        yield


@dataclasses.dataclass
class Refusal:
    """Something that a trace cannot say, where the program does it, and what to do about it."""

    place: str
    what: str
    remedy: str


@dataclasses.dataclass
class _State:
    """What the program is doing: phase, module path, stated words, hidden parts."""

    phase: str = "fwd"
    scopes: list[str] = dataclasses.field(default_factory=list)
    stated: list[dict] = dataclasses.field(default_factory=list)
    hidden: int = 0


class _Mode(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled

    def __init__(self, recorder: "Recorder"):
        super().__init__()
        self.recorder = recorder

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not self.recorder.is_hidden and any(issubclass(kind, _WRAPPERS) for kind in types):
            self.recorder.unwraps(args, kwargs or {})
            return NotImplemented
        return self.recorder.dispatch(func, args, kwargs or {})


class Recorder:
    """Records what runs inside `recording`; `program` holds the result."""

    def __init__(self, mesh: Mesh, rank: int = 0, framework: str = ""):
        version = torch.__version__.split("+")[0]
        self.program = Program(mesh, rank, framework or f"torch {version}")
        self.values = ValueTable()
        self.pairing = Pairing()
        self.functions = functions.FunctionFrames()
        self.host = hostnumbers.HostNumbers(self)
        self._state = _State()
        self._packed: dict[int, list[torch.Tensor]] = {}
        self._scratch: set[int] = set()
        # By storage: copies that composite functions have made of views of their operands, which a
        # backward may read.
        self._copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._folding = False  # inside of such a function
        self._went_back = False  # an operation of a backward was recorded
        self.whole_stack = (
            False  # whether locations have the callers of the code that starts recording
        )
        # Declares what was made outside of the recording.
        self.from_outside: Callable[[torch.Tensor], Value] = self._constant
        # Whether it is a rank's share of memory in which parameters lie one behind the other.
        self.is_share: Callable[[torch.Tensor], bool] = lambda tensor: False
        # Sees what another rank has sent, when it is first used: until then it may be on its way.
        self.on_received: Callable[[torch.Tensor, Value], None] = lambda tensor, value: None
        self._memory_resized: dict[Value, int] = {}  # the places of the operations that did it
        # By value: sees the tensor when it is first used.
        self.on_first_use: dict[Value, Callable[[torch.Tensor, Value], None]] = {}
        self.on_made: Callable[[Op, object, tuple], None] = lambda op, result, args: None
        self.on_summed: Callable[[list[torch.Tensor]], None] = lambda tensors: None
        # Numbers of the script that become a tensor: one, as a value; several, after a backward,
        # yet to be one.
        self.on_literal: Callable[[torch.Tensor, Value | None], None] = lambda tensor, value: None
        # What could not be recorded, if the recording is to go on in spite of it.
        self.refusals: list[Refusal] | None = None
        # Where an operation is checked; None is the context of the program.
        self.context: Callable[[Op], Context | None] = lambda op: None

    # Life of a recording.

    @contextlib.contextmanager
    def recording(self, model: torch.nn.Module | None = None):
        """Records what runs inside; the modules of `model` give the scopes."""
        global _active
        if _active is not None:
            raise RuntimeError("another recording is running in this process")
        with contextlib.ExitStack() as stack:
            if not self.whole_stack:
                stack.enter_context(self.program.locations.below_here())
            stack.enter_context(functions.watched(self))
            stack.enter_context(self.host.watched())
            if model is not None:
                stack.enter_context(self._module_scopes(model))
            stack.enter_context(_Mode(self))
            _active = self
            try:
                yield self
            finally:
                _active = None

    @property
    def phase(self) -> str:
        return self._state.phase

    @property
    def in_module(self) -> bool:
        """Whether a module of the program is running."""
        return bool(self._state.scopes) and self._state.phase == "fwd"

    @property
    def is_hidden(self) -> bool:
        return self._state.hidden > 0

    @contextlib.contextmanager
    def hidden(self):
        """Leaves out what runs inside; the caller records it as one operation."""
        self._state.hidden += 1
        try:
            yield
        finally:
            self._state.hidden -= 1

    @contextlib.contextmanager
    def section(self, scope: str | None = None, phase: str | None = None):
        """Names a part of the program, and the phase of the step that it is."""
        before = self._state.phase
        self._state.phase = phase or before
        self._state.scopes += [scope] if scope else []
        try:
            yield
        finally:
            self._state.phase = before
            if scope:
                self._state.scopes.pop()

    @contextlib.contextmanager
    def stated(self, **words: dict):
        """States words (`dst`) for the raw collectives that run inside, by operation."""
        self._state.stated.append(words)
        try:
            yield
        finally:
            self._state.stated.pop()

    @contextlib.contextmanager
    def _module_scopes(self, model: torch.nn.Module):
        names = {module: name for name, module in model.named_modules()}
        scopes = self._state.scopes

        def enter(module, args):
            inherited = scopes[-1] if scopes else ""
            scopes.append(names.get(module, inherited) or type(module).__name__)

        def leave(module, args, result):
            scopes.pop()

        hooks = torch.nn.modules.module
        entering = hooks.register_module_forward_pre_hook(enter)
        leaving = hooks.register_module_forward_hook(leave, always_call=True)
        try:
            yield
        finally:
            entering.remove()
            leaving.remove()

    # What the program declares.

    def declare(self, tensor: torch.Tensor, role: str, name: str, **claims) -> Value:
        """Adds a value from outside the recording: an input, a parameter, optimizer state."""
        value = self.values.define(tensor, None, written=False)
        value.claims = claims | {"role": role, "name": name}
        value.mesh = claims.get("mesh")
        if role == "input" and value.floating:
            value.requires_grad = tensor.requires_grad
        self.program.params.append(value)
        return value

    def declared_value(self, tensor: torch.Tensor) -> Value:
        """The value that was declared for a tensor, whatever was written to it since."""
        value = self.values.find(tensor)
        if value is None or "role" not in value.root.claims:
            raise KeyError("the tensor was not declared before the recording")
        return value.root

    def declare_scratch(self, tensor: torch.Tensor) -> None:
        """Marks memory whose old content the program never reads."""
        self._scratch.add(tensor.untyped_storage()._cdata)

    def declare_packed(self, flat: torch.Tensor, pieces: list[torch.Tensor]) -> None:
        """Says that a flat buffer is a tuple of tensors of different types."""
        self._packed[flat.untyped_storage()._cdata] = pieces

    def output(self, tensor: torch.Tensor, role: str, of: Value | None = None, **claims) -> None:
        """Adds a result of the program with its expected type."""
        entry: dict = {"value": self.current(tensor), "role": role}
        if of is not None:
            entry["of"] = of
        self.program.outputs.append(entry | claims)

    # Values.

    def current(self, tensor: torch.Tensor) -> Value:
        """The value that a tensor holds now, deriving it again if it was overwritten."""
        pair = self.pairing.running_forward() if self._state.phase == "bwd" else None
        before = max((v.tick for v in pair.outs), default=None) if pair else None
        value = self.values.find(tensor, before)
        if value is None:
            value = self._from_outside(tensor)
        writes = self.values.later_writes(value)
        if writes and writes[0].key == value.key:
            value = self.values.bind(tensor, writes.pop(0))
        if (joined := self._rejoined(tensor, value, writes)) is not None:
            return joined
        for write in writes:
            if write.root is not value.root:
                # Memory that was given new content as a whole: the write does not know old names.
                covers = write.span[0] <= value.span[0] and value.span[1] <= write.span[1]
                value = (
                    self._view_of(tensor, write) if covers else self._patched(tensor, value, write)
                )
                continue
            stale, value = value, self.values.define(tensor, write, written=False)
            self.add(Op("alias", [write, stale], [value], derived=True))
        return value

    def _from_outside(self, tensor: torch.Tensor) -> Value:
        """A value for a tensor that was made before the recording, or behind torch's back."""
        storage = tensor.untyped_storage()._cdata
        if self.is_share(tensor):
            return self.from_outside(tensor)
        if self.values.knows_storage(tensor) and storage not in self._packed:
            base = self.values.holder(tensor)
            if base is not None:
                return self._view_of(tensor, base)
            if parts := self.values.parts(tensor):
                return self._joined(tensor, parts)
        if storage in self._copies:
            operand, copy = self._copies.pop(storage)
            value = self.values.define(copy, None, written=False)
            self.add(Op("aten.clone.default", [self.current(operand)], [value], derived=True))
            return self.current(tensor)
        if storage in self._scratch:
            value = self.values.define(tensor, None, written=False)
            self.add(Op("aten.empty.memory_format", [], [value], {"size": list(tensor.shape)}))
            return value
        return self.from_outside(tensor)

    def see(self, items: list) -> None:
        """Declares those tensors from outside that are about to be overwritten behind torch's
        back."""
        for tensor in (item for item in items if isinstance(item, torch.Tensor)):
            known = self.values.knows_storage(tensor) or self.values.find(tensor) is not None
            storage = tensor.untyped_storage()._cdata
            if not known and storage not in self._packed and storage not in self._scratch:
                self.current(tensor)

    def _constant(self, tensor: torch.Tensor) -> Value:
        return self.declare(tensor, "const", f"const.{len(self.program.params)}")

    def _view_of(self, tensor: torch.Tensor, base: Value) -> Value:
        """A value for a view that no recorded operation made, derived from another one."""
        with self.hidden(), torch.no_grad(), torch._C.DisableTorchFunction():
            _, offset, shape, strides, _ = base.key
            whole = tensor.as_strided(shape, strides, offset)
            steps = views.derive(views.of(whole), views.of(tensor))
            made = views.carry_out(whole, steps) if steps is not None else []
        if steps is None:
            what = f"a view of {list(shape)} with gaps between its elements"
            self.refuse(what, "take a contiguous copy of it", [whole], [tensor])
            return self.values.bind(tensor, self.values.find(tensor))
        low, high = self.values.span(tensor)
        writes = self.values.later_writes(base)
        beside = all(high <= one.span[0] or one.span[1] <= low for one in writes)
        # What was written to other parts of the memory is not in this one.
        value = base if beside and not tensor.requires_grad else self.current(whole)
        for (name, words), result in zip(steps, [*made[:-1], tensor]):
            operand, value = value, self.values.define(result, value, written=False)
            self.add(Op(name, [operand], [value], words, derived=True))
        return self.values.bind(tensor, value)

    def _patched(self, tensor: torch.Tensor, before: Value, write: Value) -> Value:
        """A value for a tensor to a part of which something else was written that reaches beyond
        it, such as a rank's share of a flat buffer, which ends inside of a gradient."""
        (low, high), size = before.span, tensor.element_size()
        start, end = max(low, write.span[0]), min(high, write.span[1])
        written = views.Layout(write.key[2], write.key[3], write.key[1])
        flat = written.is_row_major and views.of(tensor).is_row_major
        if not (flat and write.key[-1] == tensor.dtype):
            what = "memory that was written in part, through another element type or with gaps"
            self.refuse(what, "write all of it", [], [tensor])
            return self.values.find(tensor)

        ends = ((before, low, start), (write, start, end), (before, end, high))
        parts = [self._run(tensor, *one) for one in ends if one[1] < one[2]]
        with self.hidden(), torch.no_grad(), torch._C.DisableTorchFunction():
            flat = tensor.as_strided([(high - low) // size], [1], low // size)
        value = self.values.define(flat, None, written=True)
        self.add(Op("aten.cat.default", [parts], [value], {"dim": 0}, derived=True))
        return self._view_of(tensor, value)

    def _run(self, tensor: torch.Tensor, value: Value, low: int, high: int) -> Value:
        """The elements of a value from one byte to another of the storage, as a tensor has it."""
        size, (first, last) = tensor.element_size(), value.span
        with self.hidden(), torch.no_grad(), torch._C.DisableTorchFunction():
            flat = tensor.as_strided([(last - first) // size], [1], first // size)
            run = tensor.as_strided([(high - low) // size], [1], low // size)
        whole = self.values.define(flat, value, written=False)
        words = {"size": [flat.numel()]}
        self.add(Op("aten.view.default", [value], [whole], words, derived=True))
        if run.numel() == flat.numel():
            return whole
        words = {"start": (low - first) // size, "end": (high - first) // size}
        part = self.values.define(run, whole, written=False)
        self.add(Op("aten.slice.Tensor", [whole], [part], words, derived=True))
        return part

    def _joined(self, tensor: torch.Tensor, parts: list[Value]) -> Value:
        """A value for memory that was written through views alone so far, such as a flat buffer
        whose parts are gradients: what was written, with what was there before between it.
        """
        low, high = self.values.span(tensor)
        with self.hidden(), torch.no_grad(), torch._C.DisableTorchFunction():
            runs = views.runs(tensor, (low, high), [(one.span, one.key) for one in parts])
        if runs is None:
            self.refuse(
                "memory that is read as a whole and was written through views that overlap, or have"
                " gaps or another element type",
                "write to parts of it that lie one behind the other",
                [],
                [tensor],
            )
            return self.values.find(tensor)
        whole, pieces = runs
        made = [
            self.current(piece) if known else self.from_outside(piece) for piece, known in pieces
        ]
        value = self.values.define(whole, None, written=True)
        self.add(Op("aten.cat.default", [made], [value], {"dim": 0}, derived=True))
        return self.current(tensor)

    def _rejoined(self, tensor: torch.Tensor, before: Value, writes: list[Value]) -> Value | None:
        """A value for a flat tensor to several parts of which something was written through views
        since: what was written, with what it held before between it. None where that is not all.
        """
        newest = {one.key: one for one in writes}.values()
        if tensor.requires_grad or len(before.shape) != 1 or len(newest) < 2:
            return None
        parts = sorted(newest, key=lambda one: (one.span[0] - one.span[1], -one.tick))
        with self.hidden(), torch.no_grad(), torch._C.DisableTorchFunction():
            runs = views.runs(tensor, before.span, [(one.span, one.key) for one in parts])
        if runs is None:
            return None
        whole, pieces = runs
        made = [
            self.current(piece) if known else self._view_of(piece, before)
            for piece, known in pieces
        ]
        value = self.values.define(whole, None, written=True)
        self.add(Op("aten.cat.default", [made], [value], {"dim": 0}, derived=True))
        return self.values.bind(tensor, value)

    def pieces(self, tensor: torch.Tensor) -> list[torch.Tensor] | None:
        """The parts of a packed buffer that `tensor` spans, if it is more than one part."""
        low, high = self.values.span(tensor)
        parts = self._packed.get(tensor.untyped_storage()._cdata, [])
        inside = [p for p in parts if low <= self.values.span(p)[0] < high]
        return inside if len(inside) > 1 else None

    # Operations.

    def dispatch(self, func, args, kwargs):
        """Runs one operation of the program and records it."""
        if self.is_hidden:
            result = func(*args, **kwargs)
            if self._folding and func is torch.ops.aten.clone.default:
                self._copies[result.untyped_storage()._cdata] = args[0], result
            return result
        if func.namespace in ("profiler", "prim"):
            return func(*args, **kwargs)
        if func.namespace == "c10d":
            return collectives.record(self, func, args, kwargs)
        if func.namespace == "_c10d_functional":
            return collectives.record_functional(self, func, args, kwargs)
        if func is torch.ops.aten.lift_fresh.default:
            if args[0].numel() == 1:
                return self._literal(args[0])
            if self._went_back:
                self.on_literal(args[0], None)
        if func is torch.ops.aten.as_strided_.default and views.keeps_places(*args, **kwargs):
            before, result = self.current(args[0]), func(*args, **kwargs)
            self.emit("aten.view.default", [before], [result], {"size": list(result.shape)})
            return result
        if func is torch.ops.aten.as_strided.default and self._state.phase == "bwd":
            # The backward of a write through a view, which autograd knows by strides alone.
            base, result = self.current(args[0]), func(*args, **kwargs)
            if not views.needs_strides(args[0], result):
                self._view_of(result, base)
                return result
        if func is torch.ops.aten.resize_.default:
            return self._resized(func(*args, **kwargs))
        bound = operands.bind(func, args, kwargs)
        if func is torch.ops.aten.copy_.default and args[0].numel():
            self._overwritten(args[0])
        if packed := [t for t in bound.tensors() if self.pieces(t)]:
            return self._dispatch_packed(func, args, kwargs, bound, packed[0])
        op = self.open(bound.name or str(func), bound)
        result = func(*args, **kwargs)
        about_types = not bound.tensors() and not isinstance(result, (torch.Tensor, list, tuple))
        # An assertion about data gives nothing, nor does the backward of what got no gradient.
        gives = any(one is not None for one in operands.flatten([result]))
        if (gives and not about_types) or op.mut or op.kw:
            self._close(op, bound, result)
            self.on_made(op, result, args)
        return result

    def _literal(self, tensor: torch.Tensor) -> torch.Tensor:
        """A number that the program wrote down as a tensor."""
        with self.hidden():
            number = operands.number(tensor.item())
        words = {"dtype": DTYPES[tensor.dtype]}
        size = {"size": list(tensor.shape)}
        if number == 0 and tensor.dtype != torch.bool:  # to which addends may be added
            self.emit("aten.zeros.default", [], [tensor], size | words)
        elif tensor.dim():
            self.emit("aten.full.default", [], [tensor], size | words | {"fill_value": number})
        else:
            self.emit("aten.scalar_tensor.default", [number], [tensor], words)
        self.on_literal(tensor, self.current(tensor))
        return tensor

    def _resized(self, tensor: torch.Tensor) -> torch.Tensor:
        """Memory that is given other extents, mostly to be overwritten: what it holds is
        unknown."""
        value = self.values.define(tensor, None, written=True)
        op = Op("call", [], [value])
        op.body = f"{RESIZED}{len(self.program.ops)}"
        self.add(op)
        self._memory_resized[value] = len(self.program.ops) - 1
        return tensor

    def _overwritten(self, tensor: torch.Tensor) -> None:
        """What memory held after it was given other extents does not matter, if nothing reads it
        before all of it is written."""
        value = self.values.find(tensor)
        if (place := self._memory_resized.pop(value, None)) is None:
            return
        op, *later = self.program.ops[place:]
        if not any(value in one.operands() for one in later):
            op.name, op.body = "aten.empty.memory_format", None
            op.attrs = {"size": list(tensor.shape), "dtype": DTYPES[tensor.dtype]}

    def fold(self, func: torch._ops.OpOverload, run, args: tuple, kwargs: dict):
        """Runs a composite function and records it as the one operation `func`."""
        bound = operands.bind(func, args, kwargs)
        op = self.open(str(func), bound)
        op.first_node = self.pairing.newest_number() + 1
        before, self._folding = self._folding, True
        with self.hidden():
            result = run()
        self._folding = before
        self._close(op, bound, result)
        return result

    def open(self, name: str, bound: operands.Bound) -> Op:
        """Starts an operation: its operands are the values that its tensors hold before it."""
        op = Op(name, self.resolve(bound.ins), [], dict(bound.attrs))
        op.kw = {key: self.resolve([item])[0] for key, item in bound.kw.items()}
        op.mut = list(bound.written)
        return op

    def resolve(self, items: list) -> list:
        """Replaces tensors by values, and numbers that the program computed by theirs."""
        resolved = []
        for item in items:
            if isinstance(item, (list, tuple)):
                resolved.append(self.resolve(item))
            elif isinstance(item, torch.Tensor):
                resolved.append(self._operand(item))
            else:
                resolved.append(self.host.value_of(item))
        return resolved

    def received(self, tensor: torch.Tensor, value: Value) -> None:
        """A message is being received."""
        self.on_first_use[value] = lambda tensor, value: self.on_received(tensor, value)

    def _operand(self, tensor: torch.Tensor) -> Value:
        value = self.current(tensor)
        if seen := self.on_first_use.pop(value, None):
            seen(tensor, value)
        if self.grad_mode and not self.functions.inside:
            self.pairing.note_operand(tensor, value)
            if self.refusals is not None:  # wrappers in scripts give leaves other memory
                self.pairing.note_leaf(tensor, value)
            if value.claims.get("role") is None:
                # One name of it, such as `data`, may have none.
                before = self.refusals is not None and bool(value.requires_grad)
                value.requires_grad = tensor.requires_grad or before
        return value

    def unwraps(self, args: tuple, kwargs: dict) -> None:
        """Operands are about to be taken out of their wrappers: autograd knows the wrappers, and
        says of what is inside of them that it has no gradient."""
        if not self.grad_mode:
            return
        for tensor in operands.flatten([*args, *kwargs.values()]):
            if isinstance(tensor, DTensor) and tensor.requires_grad:
                value = self.values.find(tensor._local_tensor)
                if value is not None and value.claims.get("role") is None and value.floating:
                    value.requires_grad = True

    def function_called(self, arguments: tuple) -> None:
        """Notes the operands of a custom autograd function before it runs."""
        if not self.is_hidden and self.grad_mode and not self.functions.inside:
            for tensor in arguments:
                if isinstance(tensor, torch.Tensor) and not isinstance(tensor, _WRAPPERS):
                    self._operand(tensor)

    @property
    def grad_mode(self) -> bool:
        """Whether gradients flow through what runs now, as the program sees it."""
        return self._state.phase == "fwd" and self.functions.grad_mode(torch.is_grad_enabled())

    def _close(self, op: Op, bound: operands.Bound, result) -> None:
        """Ends an operation: written operands first, then what it returned."""
        written = [t for i in bound.written for t in operands.flatten([bound.ins[i]])]
        written += [t for t in operands.flatten(bound.kw.values()) if t is not None]
        bases = [(t, self.values.find(t)) for t in bound.tensors()]
        for tensor in written:
            base = next(value for t, value in bases if t is tensor)
            op.outs.append(self.values.define(tensor, base, written=True))
        for tensor in operands.flatten([result]):
            if not isinstance(tensor, torch.Tensor) or any(tensor is t for t in written):
                continue
            storage = tensor.untyped_storage()._cdata
            base = next((v for _, v in bases if v.key[0] == storage), None)
            op.outs.append(self.values.define(tensor, base, written=base is None))
        self.add(op)

    def _dispatch_packed(self, func, args, kwargs, bound, flat):
        """An elementwise write to a packed buffer is the same write to each of its parts."""
        others = [tensor for tensor in bound.tensors() if tensor is not flat]
        if bound.written != [0] or any(tensor.dim() for tensor in others):
            raise NotImplementedError(f"{func}: not an elementwise write to a packed buffer")
        for part in self.pieces(flat):
            piece = operands.Bound([part, *bound.ins[1:]], {}, bound.attrs, [0])
            op = self.open(str(func), piece)
            self._close(op, piece, part)
        return func(*args, **kwargs)

    def emit(
        self,
        name: str,
        ins: list,
        outs: list[torch.Tensor],
        attrs: dict,
        mut=(),
        first_node=None,
        sizes=None,
    ) -> Op:
        """Records a typed operation whose effect has already been carried out.

        `sizes` are numbers that the program took from tensors: named operands.
        """
        operands_ = self.resolve(ins)
        op = Op(name, operands_, [], attrs, mut=list(mut), first_node=first_node)
        for word, numbers in (sizes or {}).items():
            op.kw[word] = self.current(numbers.tensor)
        bases = [value for value in operands.flatten(operands_) if isinstance(value, Value)]
        for tensor in outs:
            base = self.values.find(tensor)
            if base not in bases:
                storage = tensor.untyped_storage()._cdata
                base = next((value for value in bases if value.key[0] == storage), None)
            op.outs.append(self.values.define(tensor, base, written=bool(mut) or base is None))
        self.add(op)
        return op

    def refuse(self, what: str, remedy: str, ins: list, outs: list) -> None:
        """Says that something cannot be recorded: an unknown operation stands for it.

        It has been carried out; `outs` are the tensors that it has made or written.
        """
        if self.refusals is None:
            raise NotImplementedError(what)
        place = self.program.locations.text(self.program.locations.here())
        self.refusals.append(Refusal(place, what, remedy))
        made = [one for one in operands.flatten(outs) if isinstance(one, torch.Tensor)]
        used = [one for one in operands.flatten(ins) if isinstance(one, torch.Tensor)]
        if not made:
            return
        op = Op("call", [self._operand(one) for one in used], [])
        op.body = f"@unrecorded{len(self.refusals)}"
        for tensor in made:
            op.outs.append(self.values.define(tensor, None, written=True))
            op.outs[-1].requires_grad = tensor.requires_grad
        self.add(op)

    def add(self, op: Op) -> None:
        """Appends an operation, with phase, place and pairing of the present moment."""
        op.grad = self.grad_mode
        op.phase = self._state.phase
        op.call = self.functions.call
        op.context = self.context(op)
        for value in op.outs:
            value.mesh = op.context.mesh if op.context else None
        op.loc = self.program.locations.here()
        if op.phase == "bwd":
            self._went_back = True
            op.bwd_of = self.pairing.running_forward()
        elif op.phase == "fwd" and not op.derived:
            self._pair(op)
        if op.bwd_of is not None:
            op.scope = op.bwd_of.scope
            op.loc = op.loc if locations.user_code_in_backward() else op.bwd_of.loc
        else:
            scopes = self._state.scopes
            op.scope = self.program.locations.scope_named(scopes[-1] if scopes else None)
        self.program.ops.append(op)

    def _pair(self, op: Op) -> None:
        inputs = [v for v in operands.flatten(op.ins) if isinstance(v, Value)]
        if op.grad or self.functions.inside:
            self.pairing.note_use(op, inputs)
        if self.functions.inside:
            self.pairing.note_forward(op, in_function=True)
        elif op.grad and any(v.requires_grad is not False for v in inputs):
            self.pairing.note_forward(op, in_function=False)
            if op.first_node is not None:
                self.pairing.note_folded(op, op.first_node)

    def is_bookkeeping(self, tensor: torch.Tensor) -> bool:
        """Whether a scalar is optimizer state such as a step count, equal on every rank."""
        value = self.values.find(tensor)
        return value is not None and value.root.claims.get("role") == "opt_state"

    def words_for(self, name: str) -> dict:
        """The words stated for a raw collective by the enclosing framework code."""
        words: dict = {}
        for level in self._state.stated:
            words |= level.get(name, {})
        return words

    def backward(self, loss: torch.Tensor, **options) -> None:
        """Runs the backward pass of `loss`, pairing gradients with forward values."""
        self._begin_backward(loss)
        with self.section(None, "bwd"):
            loss.backward(**options)
        # What a wrapper hands on under another name is seen where it arrives.
        for variable in self.pairing.unmarked.values():
            gradient = variable.grad
            parts = (getattr(one, "_local_tensor", one) for one in (variable, gradient))
            forward, value = map(self.values.find, parts) if gradient is not None else (None, None)
            if forward and value:
                value.arrived_for = forward
        self.pairing.unmarked.clear()

    def backward_from(self, edges: list, run) -> None:
        """Runs a backward pass that begins at nodes of autograd, whose values the program has let
        go.
        """
        self._begin_at(edges)
        with self.section(None, "bwd"):
            run()

    def _begin_at(self, edges: list) -> None:
        for edge in edges:
            ops = self.pairing.forward.get(edge.node._sequence_nr())
            self.pairing.root = ops[-1] if ops else None
            self.pairing.watch(edge.node, self.values.find)

    def gradients(self, roots: list, inputs: list, run) -> tuple:
        """Runs a backward pass that begins at values, or at nodes of autograd, and returns the
        gradients of `inputs`.
        """
        for root in roots:
            if isinstance(root, torch.Tensor):
                self._begin_backward(root)
        self._begin_at([root for root in roots if not isinstance(root, torch.Tensor)])
        with self.section(None, "bwd"):
            found = run()
        for tensor, gradient in zip(inputs, found):
            if tensor is not None:
                self._note_gradient(tensor, gradient)
        return found

    def _begin_backward(self, loss: torch.Tensor) -> None:
        # Of a wrapper, the tensor inside is what the recording knows.
        inner = loss._local_tensor if isinstance(loss, DTensor) else loss
        root = self.current(inner)
        self.pairing.root = next((op for op in self.program.ops if root in op.outs), None)
        if self.pairing.root is None:
            raise ValueError("the loss was not computed inside the recording")
        self.pairing.note_operand(loss, root)
        self.pairing.watch(loss.grad_fn, self.values.find)

    def _note_gradient(self, tensor: torch.Tensor, gradient: torch.Tensor | None) -> None:
        if gradient is None:
            return
        tensor, gradient = (
            t._local_tensor if isinstance(t, DTensor) else t for t in (tensor, gradient)
        )
        value, forward = self.values.find(gradient), self.values.find(tensor)
        if value and forward and value.grad_of is None and value.shape == forward.shape:
            value.grad_of = forward
