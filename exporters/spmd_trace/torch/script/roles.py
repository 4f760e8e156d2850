"""What the values are that a step starts from: parameters, optimizer state, buffers, inputs.

They are declared where the step first reads them. Types come from what wraps a model (placements of
DTensors, DistributedDataParallel), else from what other ranks have there; on all other axes they
are unknown.
"""

import collections
import dataclasses
import gc
import math
import weakref
from collections.abc import Iterable

import torch
from torch.distributed.tensor import DTensor
from torch.nn.parameter import is_lazy

from ...ranks import gradient_of
from .. import versions
from ..communication import messages
from ..communication.transitions import DUAL
from ..document import Op
from ..frameworks import ddp, dtensors, fsdp1
from ..frameworks.fsdp import local_shard
from ..locations import user_frames, user_locals, user_variables
from ..recorder import Recorder
from ..values import Value, ValueTable
from . import shapes, variables
from .batch import differing
from .evidence import digest, is_short, sketch, summed_along, trained
from .takes import Taken
from .world import Seen

MAIN = "main_grad"  # where Megatron and others keep a gradient of a parameter
_RANDOM = ("aten.bernoulli", "aten.native_dropout", "aten.uniform", "aten.normal")
_RANDOM += ("aten.exponential", "aten.rand.", "aten.randn.", "aten.randint.", "aten.rand_like.")
_RANDOM += ("aten.randn_like.",)


def storage_of(tensor: torch.Tensor) -> int:
    with torch._C.DisableTorchFunction():
        return tensor.untyped_storage()._cdata


def _objects(cls: type) -> list:
    """All that the process holds of a class. `isinstance` would ask proxies, which then import
    something."""
    held = gc.get_objects()
    kinds = {kind for kind in set(map(type, held)) if issubclass(kind, cls)}
    found = [one for one in held if type(one) in kinds]
    # Among them are tuples that are being made, as by `zip(*map(...))`, which nothing else may hold
    # then: not even this frame, if another thread looks at it.
    held.clear()
    return found


_LARGE = 1 << 22  # elements of a tensor that is not looked at


def _repeats(tensor: torch.Tensor) -> list[int]:
    """The dimensions along which whole numbers repeat themselves."""
    if tensor.is_floating_point() or tensor.is_complex() or tensor.numel() > _LARGE:
        return []
    if type(tensor) is not torch.Tensor or not tensor.numel():
        return []
    long = [dim for dim, extent in enumerate(tensor.shape) if extent > 1]
    return [dim for dim in long if bool((tensor == tensor.narrow(dim, 0, 1)).all())]


def _counts_up(tensor: torch.Tensor) -> bool:
    """Whether whole numbers are 0, 1, 2, ... in one dimension."""
    if tensor.dtype != torch.int64 or type(tensor) is not torch.Tensor or tensor.dim() != 1:
        return False
    count = tensor.numel()
    return 1 < count <= _LARGE and bool((tensor == torch.arange(count)).all())


_LITERALS = ("aten.scalar_tensor.default", "aten.full.default")


def _is_count(op: Op | None) -> bool:
    """Whether a number of the script may be how many things a rank has; 1 counts the ranks."""
    number = 0 if op is None else op.ins[0] if op.ins else op.attrs["fill_value"]
    if not isinstance(number, (int, float)):  # taken out of a tensor
        return False
    return math.isfinite(number) and number > 1 and number == int(number)


def _summed(program, numbers: list[Value]) -> dict[int, set[str]]:
    """By number: the axes over which it, or what is made of such numbers, is summed."""
    from_numbers = {id(value): {id(value)} for value in numbers}
    found: dict[int, set[str]] = {}
    for op in program.ops if numbers else ():
        operands = op.operands()
        given = [from_numbers[id(one)] for one in operands if id(one) in from_numbers]
        # A list of sums and counts has each in its own place.
        beside = op.name.startswith(("aten.stack.", "aten.cat."))
        if not given or (len(given) < len(operands) and not beside):
            continue
        origins = set().union(*given)
        if op.name in ("all_reduce", "all_reduce_"):
            for origin in origins if op.attrs.get("op", "sum") == "sum" else ():
                found.setdefault(origin, set()).update(program.axes_of(op))
        else:
            from_numbers |= {id(value): origins for value in op.outs}
    return found


# By identity: models, optimizers and tensors that are sharded over the groups of a job that is
# over. The variables of a notebook hold them until its cell is run again.
_ended: dict[int, weakref.ref] = {}


def _is_of_ended_job(one) -> bool:
    kept = _ended.get(id(one))
    return kept is not None and kept() is one


def _has_groups(module: torch.nn.Module) -> bool:
    wrappers = (torch.distributed.fsdp.FSDPModule, fsdp1.FullyShardedDataParallel)
    wrappers += (torch.nn.parallel.DistributedDataParallel,)
    own = module.parameters(recurse=False)
    return isinstance(module, wrappers) or any(isinstance(one, DTensor) for one in own)


def end_job() -> None:
    """What is sharded over process groups that end is of no later recording."""
    for key, kept in list(_ended.items()):
        if kept() is None:
            del _ended[key]
    over: list = []
    for root in _roots():
        if isinstance(root, torch.nn.parallel.DistributedDataParallel):
            over.append(root)  # the model inside may be that of the next job
        elif any(map(_has_groups, root.modules())):
            over += root.modules()
    sharded = {id(p) for one in over if _has_groups(one) for p in one.parameters(recurse=False)}
    over += [one for one in optimizers() if trained_by([one]) & sharded]
    over += [one for one in tensors() if isinstance(one, DTensor)]
    _ended.update((id(one), weakref.ref(one)) for one in over)


def _roots() -> list[torch.nn.Module]:
    """The modules that are in no other one, the largest first."""
    modules = _objects(torch.nn.Module)
    inner = {id(child) for module in modules for child in module.children()}
    roots = [one for one in modules if id(one) not in inner and not _is_of_ended_job(one)]
    return sorted(roots, key=lambda root: -sum(p.numel() for p in _parameters(root)))


def _parameters(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    """Those that have a shape: a lazy module makes it in its first forward."""
    return [one for one in module.parameters() if not is_lazy(one)]


def modules_train() -> bool:
    """Whether a module has parameters, although it may not be complete yet."""
    return any(one.__dict__.get("_parameters") for one in _objects(torch.nn.Module))


def _unwrapped(root: torch.nn.Module) -> torch.nn.Module:
    return root.module if isinstance(root, torch.nn.parallel.DistributedDataParallel) else root


def _prefixes(roots: list[torch.nn.Module]) -> list[str]:
    """What stands before the names of parameters: nothing if one module alone has any, else the
    variables of the script that hold the modules, or their classes. No two are equal. Sizes decide
    nothing: they may differ between ranks, and names must not.
    """
    several = sum(any(True for _ in root.parameters()) for root in roots) > 1
    held = {id(value): name for name, value in reversed(user_variables())}
    found: list[str] = []
    for root in roots:
        inner = _unwrapped(root)
        name = held.get(id(root), held.get(id(inner), type(inner).__name__))
        prefix = f"{name}." if found or several else ""
        found.append(f"{name}.{len(found)}." if prefix in found else prefix)
    return found


def optimizers(models: list[torch.nn.Module] | None = None) -> list[torch.optim.Optimizer]:
    """All optimizers that the script holds; those that train some models, if these are given."""
    found = [one for one in _objects(torch.optim.Optimizer) if not _is_of_ended_job(one)]
    if models is None:
        return found
    trained = {id(parameter) for model in models for parameter in model.parameters()}
    return [
        one
        for one in found
        if any(id(p) in trained for group in one.param_groups for p in group["params"])
    ]


def trained_by(held: Iterable[torch.optim.Optimizer]) -> set[int]:
    """By identity, the parameters of some optimizers."""
    return {id(p) for one in held for group in one.param_groups for p in group["params"]}


def tensors() -> list[torch.Tensor]:
    """All tensors with memory of their own that the process holds."""
    with torch._C.DisableTorchFunction():
        found = versions.held(_objects(torch.Tensor))
        return [
            one
            for one in found
            if one.layout is torch.strided
            and one.device.type == "cpu"
            and not _is_of_ended_job(one)
        ]


def initial_digests() -> dict[int, tuple[torch.Tensor, str | None]]:
    """By storage: what is trained, which keeps the storage, and what it is now."""
    trained = [parameter for root in _roots() for parameter in _parameters(root)]
    groups = [group for optimizer in optimizers() for group in optimizer.param_groups]
    trained += [parameter for group in groups for parameter in group["params"]]
    if not modules_train():
        trained += [one for one in tensors() if one.requires_grad and one.is_leaf]
    shards = [local_shard(one).detach() for one in trained]
    return {storage_of(shard): (shard, digest(shard)) for shard in shards}


def initial_buffers() -> dict[str, str | None]:
    """By name: buffers of modules, as they are now."""
    roots = _roots()
    found: dict[str, str | None] = {}
    for root, prefix in zip(roots, _prefixes(roots)):
        buffers = _unwrapped(root).named_buffers()
        found |= {prefix + name: digest(local_shard(one)) for name, one in buffers}
    return found


def _contract(kinds: dict[str, str], known: dict) -> dict:
    """What a parameter of these kinds promises of its gradient, where nothing else is known."""
    gradient = {axis: DUAL.get(kind, kind) for axis, kind in kinds.items()}
    step = known.get("step", {})
    words = {"type": gradient | known.get("type", {})}
    return known | words | {"step": step | {"type": kinds | step.get("type", {})}}


def _flat_tensors() -> dict[tuple[int, torch.dtype], torch.Tensor]:
    """By storage and type: the tensors of the script that are all of it, in one dimension, such as
    one for all gradients.
    """
    with torch._C.DisableTorchFunction():
        flat = [one for one in tensors() if one.dim() == 1 and _fills_storage(one)]
    return {(storage_of(one), one.dtype): one for one in reversed(flat)}


def _is_zero(gradient: torch.Tensor) -> bool:
    """Whether a gradient is zero; where it has no values, whether it was filled with a number."""
    if not shapes.is_missing(gradient):
        return not bool(gradient.any())
    made = shapes.handle(gradient)
    return made is None or made.node.constant


def _fills_storage(tensor: torch.Tensor) -> bool:
    with torch._C.DisableTorchFunction():
        return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()


def _count(op: Op, result, args: tuple, wholes: set[int]) -> torch.Tensor | None:
    """What an operation divides by that may be the number of a rank's own samples; None:
    nothing. `wholes`: ids of numbers that are made of whole ones."""
    if op.name.startswith(("aten.nll_loss_forward", "aten.nll_loss2d_forward")):
        return result[1] if op.attrs.get("reduction") == 1 else None
    if op.name not in ("aten.div.Tensor", "aten.div_.Tensor") or len(args) < 2:
        return None
    by = args[1]
    counts = isinstance(by, torch.Tensor) and by.dim() == 0 and not by.requires_grad
    # Below autograd, as in a loss that a library computes on local tensors, nothing needs a
    # gradient.
    whole = len(op.operands()) == 2 and id(op.operands()[1]) in wholes
    return by if counts and (args[0].requires_grad or whole) else None


def clears_gradients(tensors: list) -> bool:
    """Whether one of them is, or holds, a gradient of what an optimizer trains."""
    held = {
        id(one): one for of in optimizers() for group in of.param_groups for one in group["params"]
    }
    for module in _roots():
        held |= {id(one): one for one in _parameters(module)}
    gradients = [getattr(one, name, None) for one in held.values() for name in ("grad", MAIN)]
    storages = {storage_of(local_shard(one)) for one in gradients if isinstance(one, torch.Tensor)}
    return any(
        isinstance(one, torch.Tensor) and storage_of(local_shard(one)) in storages
        for one in tensors
    )


class Roles:
    """Declares values of one recording when they are first read."""

    def __init__(self, recorder: Recorder, seen: Seen, observed: dict, updates=None, models=None):
        """`observed`: what other ranks have, as `spmd_trace.ranks.compared` says it; `updates`:
        what the script has changed so far, if it has no optimizer; `models`: those of the step, if
        not all.
        """
        self._models = models
        self.recorder, self.seen = recorder, seen
        self.kinds: dict[str, dict[str, str]] = observed.get("kinds", {})  # by name and axis
        self.drifted: dict[str, list[str]] = observed.get("drifted", {})  # parameters, with axes
        self.drifted_buffers: dict[str, list[str]] = observed.get("drifted_buffers", {})
        self.lacked: dict[str, list[str]] = observed.get("lacked", {})
        self.roots = _roots() if models is None else models
        self.wrapped_axes = self._wrapped_axes()
        # Those along which ranks have batches of their own, so that their losses are addends.
        self.data_axes = list(dict.fromkeys([*self.wrapped_axes, *observed.get("data", [])]))
        self.digests: list[dict] | None = None  # of what is declared, if they are asked for
        self.initial: dict[
            int, tuple[torch.Tensor, str | None]
        ] = {}  # `initial_digests`, with them
        self.initial_buffers: dict[str, str | None] = {}  # likewise
        self.separate: set[int] = set()  # storages of parameters that this rank has made by itself
        self.taken: dict[int, Taken] = {}  # by storage of a parameter
        self.taken_along: dict[str, list[str]] = observed.get("taken", {})  # by name
        self.contradicted: list[str] = []  # parameters that a wrapper keeps equal, and that differ
        self._numbered: set[str] = set()  # names that are numbers
        self._read: collections.Counter[str] = collections.Counter()  # see `_key`
        self.batches: set[int] = set()  # storages of what a model is called with
        self.declared: list[tuple[torch.Tensor, Value]] = []
        # By storage: tensors in it, with role, name and claims.
        self._known: dict[int, list[tuple[torch.Tensor, str, str, dict]]] = {}
        self._flat: dict | None = None  # `_flat_tensors`, once one is looked for
        self._frozen: set[str] = set()  # parameters without a gradient
        self._left: dict[tuple, torch.Tensor] = {}  # by place of a gradient: its parameter
        self._replaced: dict[int, torch.Tensor] = {}  # by storage: parameters, and the next ones
        self._zeros: set[str] = set()  # names of gradients that are zeros
        self._add_modules()
        self._add_optimizers()
        entries = [(key, one) for key, found in self._known.items() for one in found]
        self._memory = [(one[0], key) for key, one in entries if one[1] == "param"]
        self._places: dict[int, set[tuple[int, int]]] = {}  # of parameters, by storage
        for tensor, key in self._memory:
            self._places.setdefault(key, set()).add(ValueTable.span(tensor))
        self._kept: dict[int, str] = {}  # by storage: names of what was there before the step
        if updates is not None:
            self._add_changed(updates)
        self._messages: list[tuple[str, Value]] = []  # that were received, with names
        recorder.from_outside = self.declare
        recorder.is_share = self._is_share
        recorder.on_received = self._received
        self._repeated: list[tuple[Value, list[int]]] = []  # inputs, with dimensions
        self._counting: list[Value] = []  # inputs and constants
        self._literals: list[tuple[str, Value]] = []  # numbers that are tensors, with names
        self._lists: dict[int, torch.Tensor] = {}  # by storage: several numbers that are one
        recorder.on_literal = self._literal
        self._counts: list[tuple[str, Op]] = []  # operations that divide by a count, with its name
        self._wholes: set[int] = set()  # ids of numbers that are made of whole ones
        self._draws: list[tuple[str, Op]] = []  # operations that draw at random, with names
        recorder.on_made = self._made
        recorder.on_summed = self._sums
        # What was made ahead of the first use of a model: as it is compared, and named.
        self._batch: list[tuple[str, str, Value]] = []
        self._ahead: set[int] = set()  # ids of what was made before the model was used
        self._made_by: dict[int, str] = {}  # by id: which operation of its line has made it

    # What there is.

    def _wrapped_axes(self) -> list[str]:
        """The axes of DistributedDataParallel and FSDP."""
        found: list[str] = []
        for wrapped in self.seen.replicas:
            found += dtensors.axes_of(self.recorder, wrapped.process_group)
        for module in (one for root in self.roots for one in root.modules()):
            if isinstance(module, torch.distributed.fsdp.FSDPModule):
                for group in versions.sharded_groups(module._get_fsdp_state()):
                    for of in ("shard_process_group", "replicate_process_group"):
                        if (ranks := getattr(group.mesh_info, of, None)) is not None:
                            found += dtensors.axes_of(self.recorder, ranks)
        found += [axis for root in self.roots for axis in fsdp1.axes(self.recorder, root)]
        return list(dict.fromkeys(found))

    def _add(self, tensor: torch.Tensor, role: str, name: str, claims: dict, frozen=False) -> None:
        if self._find(tensor) is None:
            entry = (tensor, role, name, claims)
            self._known.setdefault(storage_of(tensor), []).append(entry)
        if frozen:
            self._frozen.add(name)

    def _find(self, tensor: torch.Tensor) -> tuple[torch.Tensor, str, str, dict] | None:
        """What is known of the memory of a tensor."""
        low, high = ValueTable.span(tensor)
        for entry in self._known.get(storage_of(tensor), []):
            start, end = ValueTable.span(entry[0])
            if start <= low and high <= end:
                return entry
        return None

    def _is_share(self, tensor: torch.Tensor) -> bool:
        """Whether it is one of as many parts as there are ranks of memory that holds several
        parameters, wherever these begin. On each rank other ones lie in it."""
        places, (low, high) = self._places.get(storage_of(tensor), ()), ValueTable.span(tensor)
        if len(places) < 2 or tensor.dim() != 1 or low == high or (low, high) in places:
            return False
        with torch._C.DisableTorchFunction():
            pieces, rest = divmod(tensor.untyped_storage().nbytes(), high - low)
        mesh = self.recorder.program.mesh
        sizes = {axis.size for axis in mesh.axes if axis.size > 1} | {mesh.world}
        return not (rest or low % (high - low)) and pieces in sizes - {1}

    def _add_modules(self) -> None:
        for root, prefix in zip(self.roots, _prefixes(self.roots)):
            model = _unwrapped(root)
            wrapped = model is not root
            contract = ddp.claims(self.recorder, root) if wrapped else {}
            for shard, name, claims in fsdp1.flat_parameters(self.recorder, root):
                self._add(shard, "param", prefix + name, claims)
            self._add_main_gradients([(prefix + n, one) for n, one in model.named_parameters()])
            for name, parameter in model.named_parameters():
                claims = self._placed(parameter) or contract
                if wrapped and name in root.parameters_to_ignore:
                    claims = {}
                elif contract and all(one is not parameter for one in ddp.reduced(root)):
                    claims = {key: claims[key] for key in claims if key != "x_reductions"}
                frozen = not parameter.requires_grad
                self._add(local_shard(parameter), "param", prefix + name, claims, frozen)
                if parameter.grad is not None:
                    self._add_gradient(parameter, prefix + name)
            # Each rank has its own until the next forward, which begins with those of the first
            # rank.
            sent = wrapped and root.broadcast_buffers
            kinds = {"type": dict.fromkeys(contract["type"], "V")} if sent else {}
            for name, buffer in model.named_buffers():
                self._add(buffer, "buffer", prefix + name, self._placed(buffer) or kinds)

    def _add_main_gradients(self, parameters: list[tuple[str, torch.nn.Parameter]]) -> None:
        """Gradients that a framework keeps beside those of autograd, as parts of flat buffers."""
        parts: dict[int, list[torch.Tensor]] = {}
        for name, parameter in parameters:
            if isinstance(part := getattr(parameter, MAIN, None), torch.Tensor):
                self._add(part, "buffer", f"{name}.{MAIN}", {})
                self._note_left(part, parameter)
                parts.setdefault(storage_of(part), []).append(part)
        for of in parts.values():
            if len(of) > 1:
                self.recorder.declare_packed(of[0], of)

    def _add_gradient(self, parameter: torch.nn.Parameter, name: str) -> None:
        """What the step before has left of the gradient of a parameter; or zeros, as a place for
        the one of this step.
        """
        part = local_shard(parameter.grad)
        if self._find(part) is not None:  # one that is kept elsewhere
            return
        whole = self._whole(part)
        zeros = _is_zero(whole)
        self._add(whole, "const" if zeros else "buffer", f"{name}.grad", {})
        self._zeros |= {f"{name}.grad"} if zeros else set()
        if whole is part:
            self._note_left(part, parameter)

    def _note_left(self, part: torch.Tensor, parameter: torch.nn.Parameter) -> None:
        if not _is_zero(part):
            self._left[ValueTable.key(part)] = local_shard(parameter)

    def _whole(self, part: torch.Tensor) -> torch.Tensor:
        """The flat tensor of the script that a part lies in; else the part."""
        if _fills_storage(part):
            return part
        if self._flat is None:
            self._flat = _flat_tensors()
        return self._flat.get((storage_of(part), part.dtype), part)

    def _placed(self, tensor: torch.Tensor) -> dict:
        """What the placements of a DTensor say."""
        return dtensors.claims(self.recorder, tensor) if isinstance(tensor, DTensor) else {}

    def _add_optimizers(self) -> None:
        for optimizer in optimizers(self._models):
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            for place, parameter in enumerate(parameters):
                name = f"{type(optimizer).__name__}.params.{place}"
                self._add(local_shard(parameter), "param", name, self._placed(parameter))
                base, _, name, claims = self._find(local_shard(parameter))
                if base.shape != local_shard(parameter).shape:  # a part of a flat parameter
                    name, claims = f"{name}.{place}", {"type": claims.get("type", {})}
                elif parameter.grad is not None:
                    self._add_gradient(parameter, name)
                for key, state in optimizer.state.get(parameter, {}).items():
                    if isinstance(state, torch.Tensor):
                        pending = dtensors.pending(self.recorder, state)
                        self._add_state(local_shard(state), name, key, parameter, claims, pending)

    def _add_changed(self, updates) -> None:
        """What a script trains by hand."""
        trained = list(updates.trained.values())
        trained += (
            [] if trained else [one for one in tensors() if one.requires_grad and one.is_leaf]
        )
        shards = [local_shard(one) for one in trained]
        self._kept = variables.names(
            {storage_of(local_shard(one)) for one in tensors()}, storage_of
        )
        for place, (tensor, shard) in enumerate(zip(trained, shards)):
            name = self._kept.get(storage_of(shard), f"param.{place}")
            self._add(shard, "param", name, self._placed(tensor))

    def _received(self, tensor: torch.Tensor, value: Value) -> None:
        name = f"message.{len(self._messages)}"
        self._messages.append((name, value))
        self.note("message", name, tensor)

    def type_messages(self) -> None:
        """What comes from elsewhere on an axis differs along it; else what ranks have got is
        compared."""
        program = self.recorder.program
        names = {id(value): name for name, value in self._messages}
        for op in program.ops:
            if op.name == "recv":
                kinds = {axis.name: "?" for axis in program.mesh.axes if axis.size > 1}
                kinds |= self.kinds.get(names.get(id(op.outs[0])), {})
                kinds |= dict.fromkeys(messages.along(program, op.attrs["peer"]), "V")
                op.outs[0].claims["type"] = kinds

    def _literal(self, tensor: torch.Tensor, value: Value | None) -> None:
        """Numbers of the script, such as those that it logs: where ranks differ in them, each has
        its own."""
        if value is None:
            self._lists[storage_of(tensor)] = tensor
            return
        name = f"literal.{len(self._literals)}"
        self._literals.append((name, value))
        self.note("literal", name, tensor)

    def type_literals(self) -> None:
        """A number in which ranks were seen to differ comes from outside: no operation makes it
        so. So does a whole one above 1 that is summed over ranks: each has counted its own."""
        program = self.recorder.program
        given: set[int] = set()
        numbers = {id(op.outs[0]): op for op in program.ops if op.name in _LITERALS}
        counts = [one for _, one in self._literals if _is_count(numbers.get(id(one)))]
        summed = _summed(program, counts)
        for name, value in self._literals:
            kinds = self.kinds.get(name, {}) | dict.fromkeys(summed.get(id(value), ()), "V")
            if "V" in kinds.values():
                given.add(id(value))
                program.params.append(value)
                value.claims = {"role": "const", "name": name, "type": kinds}
        if given:
            program.ops = [op for op in program.ops if all(id(one) not in given for one in op.outs)]

    def note_parts(self, parts) -> None:
        """Which parts of tensors this rank takes."""
        if self.digests is not None:
            for one in parts:
                row = {"role": "part", "name": one.name, "digest": str(one.index)}
                self.digests.append(row | {"place": one.index})

    def note_numbers(self, named: dict[str, str]) -> None:
        """Which numbers operations take on this rank."""
        if self.digests is not None:
            for name, numbers in named.items():
                self.digests.append({"role": "number", "name": name, "digest": numbers})

    def make_counting(self) -> None:
        """Numbers that count up from 0 on all ranks, such as `range(n)` in an index, each rank has
        counted by itself."""
        program = self.recorder.program
        for value in self._counting:
            if value in program.params:
                program.params.remove(value)
                value.claims = {}
                loc = next((op.loc for op in program.ops if value in op.operands()), None)
                words = {"end": value.shape[0]}
                made = Op("aten.arange.default", [], [value], words, loc=loc, derived=True)
                program.ops.insert(0, made)

    def expand_repeated(self) -> None:
        """What ranks have in common and repeats itself along a dimension, such as the positions of
        each sequence of a batch, was made by repeating it: ranks whose sequences are others have
        the same, too."""
        program = self.recorder.program
        for value, dims in self._repeated:
            if not dims or value not in program.params:
                continue
            shape = [1 if dim in dims else extent for dim, extent in enumerate(value.shape)]
            one = Value(value.dtype, shape, claims=value.claims, requires_grad=False)
            loc = next((op.loc for op in program.ops if value in op.operands()), None)
            words = {"size": list(value.shape)}
            made = Op("aten.expand.default", [one], [value], words, loc=loc, derived=True)
            value.claims, value.alias_of = {}, one
            program.params[program.params.index(value)] = one
            program.ops.insert(0, made)

    def forget_cleared(self) -> None:
        """Memory for gradients that is cleared before anything reads it holds nothing from the
        step before; what was cleared before the step is zeros."""
        program = self.recorder.program
        first: dict[int, Op] = {}
        for op in program.ops:
            for value in op.operands():
                first.setdefault(id(value), op)
        for value in list(program.params):
            op, of = first.get(id(value)), value.claims["name"]
            if op is None or not of.endswith("grad"):
                continue
            cleared = op.name.startswith("aten.zero_") and op.ins[0] is value
            if of in self._zeros and "V" not in self.kinds.get(of, {}).values():
                name = "aten.zeros.default"
            elif value.claims["role"] == "buffer" and cleared:
                name = "aten.empty.memory_format"
            else:
                continue
            words = {"size": list(value.shape), "dtype": value.dtype}
            place = program.ops.index(op)
            made = Op(name, [], [value], words, phase=op.phase, loc=op.loc, derived=True)
            program.ops.insert(place, made)
            program.params.remove(value)
            program.outputs = [one for one in program.outputs if one.get("of") is not value]
            value.claims, value.grad_of = {}, None

    def name_state(self) -> None:
        """What there was before and what is written after the backward is the state of an update by
        hand. A single number is what a script prints, such as a sum of losses."""
        ops = self.recorder.program.ops
        last = max((place for place, op in enumerate(ops) if op.phase == "bwd"), default=len(ops))
        updated = {id(value.root) for op in ops[last:] if op.mut or op.kw for value in op.outs}
        for tensor, value in self.declared:
            kept = storage_of(tensor) in self._kept and tensor.numel() > 1
            if value.claims["role"] == "input" and kept:
                value.claims["role"] = "opt_state" if id(value) in updated else "input"

    def _add_state(
        self, state: torch.Tensor, of: str, key: str, parameter, claims: dict, pending: list[str]
    ) -> None:
        """State of the form of its parameter has its type, and is not asked where that is unknown:
        it tells what the steps so far have made of it. A count of steps is the same everywhere.
        """
        if state.shape == local_shard(parameter).shape:
            kept = {key: claims[key] for key in ("type", "spec", "gshape") if key in claims}
            unknown = {axis.name: "?" for axis in self.recorder.program.mesh.axes if axis.size > 1}
            kept["type"] = unknown | self.kinds.get(of, {}) | kept.get("type", {})
            kept["type"] |= dict.fromkeys(pending, "P")
        else:
            axes = self.recorder.program.mesh.axes if state.dim() == 0 else []
            kept = {"type": {axis.name: "R" for axis in axes if axis.size > 1}}
        self._add(state, "opt_state", f"{of}.{key}", kept)

    def parameters(self) -> list[tuple[str, torch.Tensor, dict[str, str]]]:
        """Names, local tensors, and what wrappers say of their types."""
        known = (entry for entries in self._known.values() for entry in entries)
        return [
            (name, tensor, claims.get("type", {}))
            for tensor, role, name, claims in known
            if role == "param" and name not in self._frozen
        ]

    @property
    def moved(self) -> bool:
        """Whether a parameter has been given other memory since, as by `parameter.data = ...`."""
        return any(storage_of(parameter) != key for parameter, key in self._memory)

    # What a step reads.

    def declare(self, tensor: torch.Tensor) -> Value:
        """The value of a tensor that nothing in the recording made."""
        if known := self._find(tensor):
            base, role, name, claims = known
            others = [one for one in self._known[storage_of(base)] if one is not known]
            self._known[storage_of(base)] = others
            value = self._declare(base, role, name, claims)
            if name in self._frozen:
                value.requires_grad = False
            return self.recorder.current(tensor)
        if storage_of(tensor) in self._lists and storage_of(tensor) not in self.batches:
            return self._declare(tensor, "const", self._name(tensor, "literals"), {})
        inside = self.recorder.in_module and storage_of(tensor) not in self.batches
        if inside:  # a mask or a table that a module has made for itself
            return self._declare(tensor, "const", self._name(tensor, "const"), {})
        # A batch has dimensions; a number, such as the scale of a loss, may be anything.
        kinds = dict.fromkeys(self.wrapped_axes, "V") if tensor.dim() else {}
        return self._declare(tensor, "input", self._name(tensor, "input"), {"type": kinds})

    def _may_be_unused(self, parameter: torch.Tensor) -> bool:
        """Whether its wrapper expects that some ranks make no gradient of it. They take that of the
        others, which a rank that runs alone does not get: its copy stays behind.
        """
        wrappers = [one for one in self.seen.replicas if one.find_unused_parameters]
        storage = storage_of(parameter)
        return any(storage_of(one) == storage for each in wrappers for one in ddp.reduced(each))

    def _declare(self, tensor: torch.Tensor, role: str, name: str, claims: dict) -> Value:
        axes = self.recorder.program.mesh.axes
        kinds = {axis.name: "?" for axis in axes if axis.size > 1}
        key = self._key(role, name)
        stated, seen = claims.get("type", {}), self.kinds.get(key, {})
        # What a wrapper says of its batches is what they should be; of all else it knows better.
        kinds |= stated | seen if role == "input" else seen | stated
        claims = claims | {"type": kinds}
        differ = [axis for axis in stated if stated[axis] in ("R", "I") and seen.get(axis) == "V"]
        if role == "param" and differ and not self._may_be_unused(tensor):
            self.contradicted.append(f"{name} (along {', '.join(differ)})")
            kinds |= dict.fromkeys(differ, "V")  # and its contract says what the wrapper keeps
        summed = any(kinds.get(a) == "R" for a in self.data_axes if a not in stated)
        if "grad" in claims or (role == "param" and summed):
            claims["grad"] = _contract(kinds, claims.get("grad", {}))
        if role == "param" and name in self.drifted:
            claims["drifted"] = self.drifted[name]
            # What a wrapper that cuts parameters has left out is a block of nothing.
            left = [axis for axis in self.wrapped_axes if axis in self.drifted[name]]
            kinds |= {axis: "I" for axis in left if axis not in stated and kinds[axis] == "V"}
        if role == "buffer" and name in self.drifted_buffers:
            own = [axis for axis in self.drifted_buffers[name] if axis not in stated]
            claims |= {"drifted": own} if own else {}
        compared = [
            axis for axis in seen if kinds.get(axis) == seen[axis] != "?" and axis not in stated
        ]
        own = [axis for axis in compared if kinds[axis] == "V"]
        # A parameter that another rank lacks was compared with none.
        if role == "param":
            compared = [axis for axis in compared if name not in self.lacked.get(axis, [])]
        if compared:
            claims["observed"] = compared
        if role == "param" and own and storage_of(tensor) in self.separate:
            claims["separate"] = own
        taken = self.taken.get(storage_of(tensor)) if role == "param" else None
        if taken and (along := self.taken_along.get(name)):
            claims |= {"taken": along, "taken_dim": taken.dim, "taken_blocks": taken.blocks}
        self.note(role, key, tensor)
        value = self.recorder.declare(tensor, role, name, **claims)
        if role in ("input", "const") and kinds and set(kinds.values()) == {"R|I"}:
            with self.recorder.hidden():
                if _counts_up(tensor):
                    self._counting.append(value)
                elif role == "input":
                    self._repeated.append((value, _repeats(tensor)))
        self.declared.append((tensor, value))
        return value

    def _key(self, role: str, name: str) -> str:
        """What is compared between ranks. Several inputs may have one name, and what has none a
        number that another run need not give it: so each counts where the script reads it.
        """
        if role not in ("input", "const"):
            return name
        place = next((f"{f.f_code.co_filename}:{f.f_lineno}" for f in user_frames()), "")
        name = f"{role} {place}" if name in self._numbered else f"{name} {place}"
        self._read[name] += 1
        return f"{name} {self._read[name]}"

    def note(self, role: str, name: str, tensor: torch.Tensor) -> None:
        """Keeps a digest for a comparison of ranks, if one is asked for."""
        if self.digests is None:
            return
        with self.recorder.hidden():
            row = {"role": role, "name": name, "digest": digest(tensor)}
            if role == "param":
                _, row["initial"] = self.initial.get(storage_of(tensor), (None, row["digest"]))
                if taken := self.taken.get(storage_of(tensor)):
                    row["taken"] = list(dataclasses.astuple(taken))
            elif role == "opt_state":
                row["elements"] = tensor.numel()
            elif role == "buffer" and name in self.initial_buffers:
                row["began"] = self.initial_buffers[name]
            elif role == "input":
                row["short"] = is_short(tensor)
            row["sketch"] = sketch(tensor) if tensor.is_floating_point() else []
            self.digests.append(row)

    def _name(self, tensor: torch.Tensor, role: str) -> str:
        """The variable of the script that holds a tensor."""
        for name, value in user_locals():
            if value is tensor:
                return name
        if name := self._kept.get(storage_of(tensor)):
            return name
        name = f"{role}.{len(self._numbered) + 1}"
        self._numbered.add(name)
        return name

    def _made(self, op: Op, result, args: tuple) -> None:
        if op.name.startswith(_RANDOM):
            drawn = (
                result[-1] if isinstance(result, tuple) else result
            )  # of a dropout: which elements stay
            name = f"random.{len(self._draws)}"
            self._draws.append((name, op))
            self.note("random", name, drawn)
        elif (count := _count(op, result, args, self._wholes)) is not None:
            name = f"count.{len(self._counts)}"
            self._counts.append((name, op))
            self.note("count", name, count)
        self._note_whole(op)

    def _sums(self, tensors: list[torch.Tensor]) -> None:
        """Gradients are about to be summed over ranks: what is equal on them is used by all as
        one."""
        for tensor in tensors if self.digests is not None else ():
            value = self.recorder.values.find(tensor)
            while value is not None:
                if (parameter := trained(value)) is not None:
                    self.note("gradient", gradient_of(parameter.claims["name"]), tensor)
                    break
                value = value.alias_of

    def _note_whole(self, op: Op) -> None:
        """A number that is made of whole ones alone, such as that of targets which are not
        ignored, is a count, whatever it is cast to."""
        operands = op.operands()
        whole = all(not value.floating or id(value) in self._wholes for value in operands)
        if operands and whole:
            self._wholes |= {id(value) for value in op.outs if not value.shape}

    def note_counts(self) -> None:
        """Of what is divided by: along which axes ranks have the same, and along which they have
        not."""
        for name, op in self._counts:
            seen = self.kinds.get(name, {})
            for key, kind in (("counts_equal", "R|I"), ("counts_differ", "V")):
                if axes := [axis for axis in seen if seen[axis] == kind]:
                    op.attrs[key] = axes

    def note_random(self) -> None:
        """What ranks draw at random is their own where they were seen to differ, and where they
        have batches of their own, unless what they drew was the same.
        """
        names = {id(op): name for name, op in self._draws}
        for op in self.recorder.program.ops:
            if not op.name.startswith(_RANDOM):
                continue
            seen = self.kinds.get(names.get(id(op)), {})
            kinds = {axis: seen.get(axis, "V") for axis in (*self.data_axes, *seen)}
            for value in op.outs if kinds else ():
                value.claims["type"] = kinds

    def watch_batch(self, made: list[Value]) -> None:
        """What was made so far and the model is going to use is the batch: ranks are compared in
        it."""
        if not made:
            return
        self._ahead |= {id(value) for value in made}
        program, times = self.recorder.program, collections.Counter()
        for op in program.ops:
            place = f"made {program.locations.text(op.loc)}{op.name}"
            times[place] += 1
            self._made_by |= {id(value): f"{place} {times[place]}" for value in op.outs}
        self.recorder.on_first_use |= dict.fromkeys(made, self._batch_used)

    def _batch_used(self, tensor: torch.Tensor, value: Value) -> None:
        name = f"batch.{len(self._batch)}"
        self._batch.append((name, self._name(tensor, "input"), value))
        self.note("input", name, tensor)
        self.note("made", self._made_by.get(id(value), ""), tensor)

    def take_batch(self, numbers: dict[str, set[int]]) -> None:
        """Of a part of the batch in which ranks were seen to differ, although no operation tells
        why, only that is known: it comes from outside. So does what is made with `numbers` of a
        rank (ids, by axis). Where other ranks use what another operation has made, such as other
        elements of a list, what is made of all of them is not of these.
        """
        program = self.recorder.program
        varying: dict[str, set[int]] = {}
        for key, name, value in self._batch:
            seen = self.kinds.get(key, {})
            own = [axis for axis in seen if seen[axis] == "V"]
            for axis in own:
                if axis not in varying:
                    varying[axis] = differing(program, axis)
            unexplained = [axis for axis in own if id(value) not in varying[axis]]
            if unexplained or any(id(value) in numbers.get(axis, ()) for axis in own):
                made = self.kinds.get(self._made_by.get(id(value)), {})
                picked = any(made.get(axis) != "V" for axis in own)
                program.from_outside(value, name, seen, self._ahead if picked else frozenset())

    def take_whole_gradients(self, summed: dict[str, list[str]]) -> None:
        """A copy of a DTensor is used by all ranks as one where its gradient is whole on each of
        them, by its placements, although nothing has summed it."""
        with self.recorder.hidden():
            trained = {id(p): p for root in self.roots for p in root.parameters()}
            # What becomes addends, in whose backward each rank has its part of the gradient.
            divided = {
                id(value.root)
                for op in self.recorder.program.ops
                if op.name == "convert" and op.attrs.get("src") == "R"
                for value in op.operands()
            }
            along = None
            for parameter in trained.values():
                value = self.recorder.values.find(local_shard(parameter))
                gradient = parameter.grad
                if value is None or not all(isinstance(x, DTensor) for x in (parameter, gradient)):
                    continue
                name = value.root.claims.get("name")
                copied = dtensors.copied(self.recorder, parameter)
                axes = copied & dtensors.copied(self.recorder, gradient)
                axes -= {*summed.get(name, []), *self.wrapped_axes}
                made = self.recorder.values.find(local_shard(gradient))
                if axes and made is not None:
                    if along is None:
                        along = summed_along(self.recorder.program)
                    axes -= along.get(id(made), set())
                own = id(value.root) not in divided and value.root.claims.get("role") == "param"
                if own and axes:
                    self._used_as_one(value.root, axes)

    def _used_as_one(self, parameter: Value, axes: set[str]) -> None:
        one = dict.fromkeys(axes, "I")
        name, program = parameter.claims["name"], self.recorder.program
        for value in program.params:
            of_it = value.claims["role"] == "opt_state" and value.shape == parameter.shape
            if value is not parameter and not (
                of_it and value.claims["name"].startswith(f"{name}.")
            ):
                continue
            value.claims["type"] = value.claims["type"] | one
            if "grad" in value.claims:
                contract = value.claims["grad"]
                step = contract["step"] | {"type": contract["step"]["type"] | one}
                value.claims["grad"] = contract | {"type": contract["type"] | one, "step": step}
            for entry in program.outputs:
                if entry.get("of") is value and "type" in entry:
                    entry["type"] = entry["type"] | one

    def follow(self, replaced: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """What the step has made takes the places of parameters: pairs of old and new ones."""
        self._replaced = {storage_of(old): new for old, new in replaced}

    def note_batch(self, arguments) -> None:
        """What a model is called with is a batch, not a constant of the model."""
        leaves = torch.utils._pytree.tree_leaves(arguments)
        self.batches |= {storage_of(one) for one in leaves if isinstance(one, torch.Tensor)}

    def write_outputs(self) -> None:
        """What the step leaves in parameters and optimizer state has the type that it had
        before."""
        for tensor, value in self.declared:
            role = value.claims["role"]
            tensor = self._replaced.get(storage_of(tensor), tensor)
            if role in ("param", "opt_state") and self.recorder.current(tensor) is not value:
                kept = {key: value.claims[key] for key in ("type", "spec") if key in value.claims}
                self.recorder.output(tensor, "state", value, **kept)
            parameter = self._left.get(ValueTable.key(tensor)) if role == "buffer" else None
            if parameter is not None and (found := self.recorder.values.find(parameter)):
                value.grad_of = found.root
