"""What a script does before a step uses its model: it makes the batch, for the most part.

That belongs to the step: which part of the data a rank takes, and what it counts of them, decides
what its gradients are worth. The rest of the step before, such as printing its loss, does not.
"""

import collections
import contextlib

import torch

from ..document import RESIZED, Op, Program
from ..operands import flatten
from ..recorder import Recorder
from ..values import Value

_MOST_RESTARTS = 8  # where many tensors are written one by one, as after an update by hand


class Batch:
    """Of one recording: the operations ahead of the first use of the model."""

    def __init__(self, recorder: Recorder, restarts: int):
        """`restarts`: how often the recording of this step has begun anew."""
        self.recorder, self.restarts = recorder, restarts
        self.is_open = True
        self.ops: list[Op] = []  # once it is closed
        self._data: set[int] = set()  # then, ids of what is made of data alone
        self._seen = 0  # then, operations that were looked at
        self._looked, self._changed = (
            0,
            False,
        )  # at so many operations: whether one of them changed something
        self._made: dict[int, torch.UntypedStorage] = {}  # what was drawn or loaded
        self.cleared: set[int] = set()  # operations that clear gradients, by place
        self.begun: int | None = (
            None  # where gradients are cleared first: what follows is the step's
        )

    def draws(self, run):
        """Runs what makes data: they come from outside of the program."""
        with self.recorder.hidden():
            result = run()
            self.comes(result)
        return result

    def comes(self, data) -> None:
        """Data have been made outside of the recording."""
        if not self.is_open:
            return
        with torch._C.DisableTorchFunction():
            for one in torch.utils._pytree.tree_leaves(data):
                if isinstance(one, torch.Tensor) and one.layout is torch.strided:
                    storage = one.untyped_storage()
                    self._made[storage._cdata] = storage

    @contextlib.contextmanager
    def clearing(self):
        """Gradients are cleared inside, which belongs to the step."""
        before = len(self.recorder.program.ops)
        self.begun = before if self.begun is None else self.begun
        yield
        self.cleared |= set(range(before, len(self.recorder.program.ops)))

    @property
    def disturbed(self) -> bool:
        """Whether the step before has changed something that was there, so that what was seen of it
        no longer holds, or done what cannot be recorded.
        """
        ops = self.recorder.program.ops[self._looked : self.begun]
        self._looked += len(ops)
        self._changed = self._changed or any(self._changes(op) for op in ops)
        refused = self.begun is None and self.recorder.refusals
        return self._changed or bool(refused)

    @property
    def may_restart(self) -> bool:
        return self.restarts < _MOST_RESTARTS

    def _changes(self, op: Op) -> bool:
        if _unknown(op):
            return True
        if op.name in ("send", "recv"):  # a batch, unless it is what is trained
            return any(value.key[0] in self._trained() for value in (*op.operands(), *op.outs))
        operands = op.operands()
        written = [operands[place].root for place in op.mut if place < len(operands)]
        written += [value.root for value in flatten(op.kw.values()) if isinstance(value, Value)]
        return any("role" in one.claims and one.key[0] not in self._made for one in written)

    def _trained(self) -> set[int]:
        """The storages of parameters and of their state."""
        params = self.recorder.program.params
        return {one.key[0] for one in params if one.claims["role"] in ("param", "opt_state")}

    def close(self) -> list[Value]:
        """The model is used now; returns what the operations so far have made."""
        ops = self.recorder.program.ops
        self.is_open = False
        self.ops = [
            op for place, op in enumerate(ops) if place not in self.cleared and not _acts(op)
        ]
        self._made.clear()
        self._data = {id(value) for op in self.ops for value in op.outs}
        self._seen = len(ops)
        return [value for op in self.ops for value in op.outs]

    def goes_on(self, at_the_end: bool = False) -> list[Value]:
        """What has been made of data alone since: once there was a backward in between, another
        micro-batch, for a use of the model that begins now; or `at_the_end` of the step, nothing.
        """
        ops = self.recorder.program.ops[self._seen :]
        if self.is_open or not (at_the_end or any(op.phase == "bwd" for op in ops)):
            return []
        self._seen += len(ops)
        program = self.recorder.program
        self._data |= {id(one) for one in program.params if one.claims["role"] == "input"}
        made: list[Value] = []
        for op in ops:
            operands = op.operands()
            alone = op.phase == "fwd" and op.scope is None and not _acts(op)
            if alone and operands and all(id(value) in self._data for value in operands):
                self._data |= {id(value) for value in op.outs}
                changes = op.mut or op.kw or op.runs_over_ranks()
                self.ops += [] if changes else [op]
                made += op.outs
        return [] if at_the_end else made


class Numbers:
    """The numbers that the operations take that make a batch, such as where a slice begins."""

    def __init__(self, program: Program, ops: list[Op]):
        times: collections.Counter = collections.Counter()
        self.named: dict[str, str] = {}  # by a name that is the same on all ranks
        self._ops: list[tuple[Op, str, str]] = []
        for op in ops:
            place = f"numbers {program.locations.text(op.loc)}{op.name}"
            times[place] += 1
            name = f"{place} {times[place]}"
            taken = [one for one in flatten([*op.ins, *op.attrs.values()]) if _is_number(one)]
            self._ops.append((op, op.name, name))
            if taken:
                self.named[name] = str(taken)

    def own(self, kinds: dict[str, dict[str, str]]) -> dict[str, set[int]]:
        """By axis: ids of what is made with numbers in which ranks differ, where these are not
        stated as the part of a rank."""
        found: dict[str, set[int]] = {}
        for op, before, name in self._ops:
            for axis, kind in kinds.get(name, {}).items():
                if kind == "V" and op.name == before:
                    found.setdefault(axis, set()).update(id(one) for one in op.outs)
        for values in found.values():
            for op, *_ in self._ops:
                if any(id(one) in values for one in op.operands()):
                    values |= {id(one) for one in op.outs}
        return found


def _is_number(one) -> bool:
    return isinstance(one, (int, float)) and not isinstance(one, bool)


def _acts(op: Op) -> bool:
    """Whether an operation does something to others, or what nobody knows."""
    return _unknown(op) or op.name in ("send", "recv")


def _unknown(op: Op) -> bool:
    return op.body is not None and not op.body.startswith(RESIZED)


def leave_out(program: Program, batch: Batch | None) -> None:
    """Drops what the step before has left to do, and the making of the next batch."""
    ops = program.ops
    ahead = {id(op) for op in batch.ops} if batch is not None else set()
    last = max((place for place, op in enumerate(ops) if op.phase != "fwd"), default=len(ops)) + 1
    foreign = _of_the_next(program, last)
    needed = {id(entry["value"]) for entry in program.outputs}
    kept: list[Op] = []
    at_the_end = True  # what only reads, as the last thing of the step, says nothing of it
    for place in reversed(range(len(ops))):
        op = ops[place]
        wanted = any(id(value) in needed for value in op.outs)
        if place >= last:
            changes = bool(op.mut or op.kw or op.runs_over_ranks())
            wanted |= id(op) not in foreign and (changes or not at_the_end)
        else:
            wanted |= id(op) not in ahead
        if wanted:
            at_the_end = False
            kept.append(op)
            for value in op.operands():
                while value is not None:
                    needed.add(id(value))
                    value = value.alias_of
    program.ops = kept[::-1]
    there = {id(op) for op in kept}
    for op in kept:
        if op.bwd_of is not None and id(op.bwd_of) not in there:
            op.bwd_of = None
    _drop_unused(program)


def _of_the_next(program: Program, last: int) -> set[int]:
    """Of the operations behind its last one: those on data, and on nothing that the step has made
    or trains. So are those on what is made of nothing, or on numbers that the step has not used,
    unless ranks bring them together, as numbers that they log."""
    own = {id(value) for op in program.ops[:last] for value in op.outs}
    used = {id(value) for op in program.ops[:last] for value in op.operands()}
    own |= {id(value.root) for op in program.ops[:last] if op.mut or op.kw for value in op.outs}
    own |= {id(value) for value in program.params if value.claims["role"] not in ("input", "const")}
    data = {id(value) for value in program.params if value.claims["role"] == "input"} - own
    numbers = {id(value) for value in program.params if value.claims["role"] == "const"}
    numbers -= own | used
    found: set[int] = set()
    for op in program.ops[last:]:
        values = {id(one) for value in op.operands() for one in (value, value.root)}
        made = {id(value) for value in op.outs}
        if values & own:
            own |= made
        elif values & data:
            found.add(id(op))
            data |= made
        elif (values & numbers or not values) and not op.runs_over_ranks():
            found.add(id(op))
            numbers |= made
    return found


def _drop_unused(program: Program) -> None:
    """Drops the inputs of what was left out."""
    used = {id(value) for op in program.ops for value in op.operands()}
    used |= {id(entry[key]) for entry in program.outputs for key in ("value", "of") if key in entry}
    program.params = [value for value in program.params if id(value) in used]


_MAKES_EQUAL = ("all_reduce", "all_gather", "broadcast")


def differing(program: Program, axis: str) -> set[int]:
    """The values of which the program tells that ranks may differ in them along an axis."""
    found = {id(value) for value in program.params if _is_own(value, axis)}
    for op in program.ops:
        own = op.name == "convert" and op.attrs["axis"] == axis
        own |= any(id(value) in found for value in op.operands())
        if op.name.rstrip("_").startswith(_MAKES_EQUAL):
            own = False
        found |= {id(value) for value in op.outs if own or _is_own(value, axis)}
    return found


def _is_own(value: Value, axis: str) -> bool:
    return value.claims.get("type", {}).get(axis) in ("V", "?")
