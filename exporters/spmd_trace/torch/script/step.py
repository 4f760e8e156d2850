"""Finds the step of a script that is recorded, and records it.

A step begins with the making of its batch, the first `zero_grad`, call of a module or use of a
parameter after the step of the optimizer before it, and ends where the model is used next: what
follows the optimizer, such as a gather of the parameters, belongs to it, but the making of the next
batch does not.
"""

import contextlib
import functools

import torch
from torch.distributed.tensor import DTensor
from torch.nn.parameter import is_lazy
from torch.optim import optimizer as optimizers
from torch.overrides import TorchFunctionMode

from .. import locations
from ..communication import mappings, messages
from ..communication.transitions import reinterpret
from ..composites import Composites
from ..frameworks import ddp, dtensors, fsdp, fsdp1, megatron
from ..frameworks.cpu import replaced
from ..ranks import ownparts
from ..recorder import Recorder, Refusal, unrecorded
from . import axes, calls, evidence, roles, transforms, updates
from .batch import Batch, Numbers, leave_out
from .origins import HANDED_OUT, Origins
from .sources import tensors
from .takes import Taken, Takes
from .world import Job, Seen

# Functions whose results are data where no module calls them.
_DATA = {torch.rand, torch.randn, torch.randint, torch.randperm, torch.normal, torch.as_tensor}
_DATA |= {torch.from_numpy, torch.frombuffer, torch.rand_like, torch.randn_like, torch.randint_like}
# They draw by what is given to them: data before a model is used, else what a model makes of some.
_DRAWS = {
    getattr(of, name) for of in (torch, torch.Tensor) for name in ("multinomial", "bernoulli")
} | {torch.poisson, torch.binomial}
# Functions by which a batch may be taken out of data that are there.
_TAKES = {torch.Tensor.__getitem__, torch.Tensor.index_select, torch.index_select, torch.tensor}
_TAKES |= {
    getattr(of, name) for of in (torch, torch.Tensor) for name in ("chunk", "split", "narrow")
}


# Functions that clear gradients.
_CLEARS = {torch.Tensor.zero_, torch.zero_, torch._foreach_zero_}


class _Watch(TorchFunctionMode):
    """Sees what functions the script calls: those with which a step begins, and those that make
    data or are recorded as a whole. It is the only such mode, entered once: those of the script may
    come and go.
    """

    def __init__(self, steps: "Steps"):
        super().__init__()
        self.steps = steps

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, steps = kwargs or {}, self.steps
        if transforms.running():
            return func(*args, **kwargs)
        # Else a use says nothing: an optimizer takes the steps, and the one to record has begun or
        # is far.
        if steps.by_hand or steps.between:
            used = updates.trained_in(func, args)
            if steps.copies:
                used += steps.updates.sources.fed_by(_name(func), tensors(args))
            if used:
                steps.uses(used)
        if func in _CLEARS and steps.clears(args):
            with steps.clearing():
                return self._seen(func, types, args, kwargs)
        if func in _DATA or func in _TAKES or func in _DRAWS:
            steps.makes_batch()
        result = self._seen(func, types, args, kwargs)
        if steps.copies:
            given = tensors([*args, *kwargs.values()])
            steps.updates.sources.note(_name(func), given, tensors(result))
        if steps.digests and steps.initial is None:
            steps.origins.note(func, args, kwargs, result)
            steps.takes.note(func, args, kwargs, result)
        return result

    def _seen(self, func, types, args, kwargs):
        steps = self.steps
        if steps.composites is None:
            return func(*args, **kwargs)
        makes = func in _DATA or (func in _DRAWS and steps.batch.is_open)
        if makes and not steps.recorder.in_module and steps.recorder.phase == "fwd":
            return steps.batch.draws(lambda: func(*args, **kwargs))
        return steps.composites.__torch_function__(func, types, args, kwargs)


class Steps:
    """Counts the steps of a script, and records one of them; `done` is called when it is over.

    `observed`: what other ranks have; `digests`: whether to note for such a comparison what this
    one has.
    """

    def __init__(
        self,
        job: Job,
        seen: Seen,
        number: int,
        done,
        observed: dict,
        digests: bool = False,
        inference: bool = False,
    ):
        self.at_first = None  # called where what is recorded may begin, once
        self.at_step = None  # called with the roles where the step begins, instead of recording it
        self.by_optimizers = False  # whether it is known that an optimizer takes the steps
        self.given = inference  # whether the program itself says where the step begins and ends
        self.inference = inference  # whether the step is a call of a model, not one that trains
        self.calls = 0  # of models, by the script itself
        self._inside = False  # of such a call
        self._part: locations.Passages | None = None  # of the locations that the caller has named
        self.models: list[torch.nn.Module] | None = None  # those of the step; None: all
        self.job, self.seen, self.number, self.done = job, seen, number, done
        self.observed, self.digests = observed, digests
        self.counts: dict[torch.optim.Optimizer, int] = {}
        self._held: set[torch.optim.Optimizer] = set()  # when the first of them had stepped
        # Of how many optimizers it was asked whether some have still to take their first step.
        self._first_round = 0, False
        self.recorder: Recorder | None = None
        self.composites: Composites | None = None  # of the recording
        self.batch: Batch | None = None  # likewise
        self.roles: roles.Roles | None = None
        self.losses: list[torch.Tensor] = []
        self._recording = contextlib.ExitStack()
        self._section = contextlib.ExitStack()
        self._in_backward = False
        self.over = False  # whether the step has been handed on
        # Called where a model is used in a later step, with the steps so far.
        self.at_later = lambda steps: None
        self._ended = False  # whether the script is over
        self._optimizes = False  # whether it has made an optimizer
        # Where another step may have begun, after a step of an optimizer: numbers of operations and
        # of losses so far.
        self._again: tuple[int, int] | None = None
        self._modules_train = False  # whether they were seen to have parameters
        self._first: list = []  # digests of what is passed to a transform, before the first step
        self.initial: dict | None = None  # `roles.initial_digests` before the first step
        self.initial_buffers: dict = {}  # likewise
        self.origins = Origins()  # of what there is before it
        self.takes = Takes()
        self.separate: set[int] = set()  # storages of what is trained that this rank has made
        self.parts: dict[int, Taken] = {}  # by storage: what it has taken out of a whole
        self.log: calls.Log | None = None
        self.updates = updates.Updates()
        self.exchanged: list[str] = []  # parameters that ranks send to each other
        self.messages: list[dict] = []  # that the recorded step sends and receives
        self.summed: dict[str, list[str]] = {}  # by parameter, axes along which its gradient is

    @property
    def taken(self) -> int:
        """The steps that all optimizers have taken, or the updates of a script that has none."""
        if self._in_first_round:
            return 0
        return min(self.counts.values(), default=self.updates.count)

    @property
    def _in_first_round(self) -> bool:
        """Whether an optimizer has still to take its first step, such as that of a generator after
        that of its discriminator. Once another one has taken two, it is one that the script does
        not use; one that wraps another trains nothing that has not been stepped.
        """
        if self._ended or max(self.counts.values(), default=0) != 1:
            return False
        if len(self.counts) != self._first_round[0]:  # asked at every function of the script
            left = roles.trained_by(self._held) - roles.trained_by(self.counts)
            self._first_round = len(self.counts), bool(left)
        return self._first_round[1]

    def go_on(self, at_step) -> None:
        """Where a step began and was not recorded: the next one is the one that is waited for."""
        self.over, self.at_step = False, at_step
        self.number += 1

    def uses(self, parameters: list[torch.Tensor]) -> None:
        """A forward uses parameters."""
        if self.over and self.by_hand and not self.given:
            self.at_later(self.taken)
        if self.over or self.given:
            return
        # Those of modules are noted where one is called: before, they may not be complete.
        if self.digests and self.initial is None and not self._modules_train:
            self._modules_train = roles.modules_train()
            if not self._modules_train:
                self._note_initial()
        if self.by_hand:
            self.updates.look()
        if self.between:
            self.begins()
        if self.by_hand:
            self.updates.use(parameters)

    def differentiates(self, parameters: list[torch.Tensor]) -> None:
        """The script asks a transform for gradients with respect to its arguments."""
        if self.over and self.by_hand and not self.given:
            self.at_later(self.taken)
        if self.over or self.given or not self.by_hand or roles.optimizers():
            return
        if not parameters:
            self.updates.forget()
        if not parameters or not self.updates.trains(parameters):
            return
        self._note_initial()
        if self.digests:  # what they were at first, wherever they are now
            with unrecorded():
                if len(self._first) != len(parameters):
                    self._first = [evidence.digest(one) for one in parameters]
            for one, began in zip(parameters, self._first):
                self.initial[roles.storage_of(one)] = one, began
        if self.updates.passed(parameters) and self.roles is not None:
            self.roles.follow(self.updates.replaced)
        if self.between:
            self.begins()

    def _note_initial(self) -> None:
        """What is trained, before the first step."""
        if self.digests and self.initial is None:
            self.initial = roles.initial_digests()
            self.initial_buffers = roles.initial_buffers()
            if self.log is not None and not self.log.called & HANDED_OUT:
                trained = [tensor for tensor, _ in self.initial.values()]
                own = [one for one in trained if self.origins.is_own(one)]
                self.separate = {roles.storage_of(one) for one in own}
            found = {key: self.takes.taken(one) for key, (one, _) in self.initial.items()}
            self.parts = {key: one for key, one in found.items() if one is not None}
            self.origins, self.takes = Origins(), Takes()

    @property
    def by_hand(self) -> bool:
        """Whether no optimizer has taken a step."""
        return not self.counts

    @property
    def copies(self) -> bool:
        """Whether the script may train copies of its weights, which are made for each step."""
        return not self._optimizes and not self.over

    @property
    def between(self) -> bool:
        """Whether the next step would be begun, or the recorded one be over, by a use of the
        model."""
        if self.by_optimizers and not self._optimizes:
            return False
        before = self.recorder is None and self.taken >= self.number - 1
        return before or (self.recorder is not None and self.taken >= self.number)

    def begins(self, used: bool = True) -> None:
        """A step begins here, by a use of the model or, not `used`, by clearing its gradients."""
        if used and self.over and not self.given:
            self.at_later(self.taken)
        if self.over or self.given:
            return
        self._note_initial()
        self._note_again()
        if self.by_hand:
            self.updates.look()
        if self.between:
            if self.recorder is not None:
                self.finish()
            if self.over:
                return
            self._start()
        elif self._disturbed:
            self._start_anew()
        if used and self.batch is not None and self.batch.is_open:
            self.roles.watch_batch(self.batch.close())

    def makes_batch(self) -> None:
        """The script makes data, or takes a part of them: a step begins, if the one before is
        over."""
        if self.over or self.given or self.by_hand or self.at_step is not None:
            return
        self._note_again()
        if self.recorder is None and self.between:
            self._start()
        elif self._disturbed and self.batch.may_restart:
            self._start_anew()

    def _note_again(self) -> None:
        if self.counts and self.recorder is not None and self._again is None:
            self._again = len(self.recorder.program.ops), len(self.losses)

    @property
    def _disturbed(self) -> bool:
        """Whether what was recorded ahead of the first use of the model tells of the step
        before."""
        recording = self.recorder is not None and self.batch.is_open
        return recording and (self.batch.disturbed or self.roles.moved)

    @contextlib.contextmanager
    def watched(self):
        """Watches the optimizers and modules of a script."""
        cls = torch.optim.Optimizer
        clear, clear_module = cls.zero_grad, torch.nn.Module.zero_grad
        make = cls.__init__

        @functools.wraps(make)
        def optimizer_made(optimizer, *args, **kwargs):
            self._optimizes = True
            return make(optimizer, *args, **kwargs)

        @functools.wraps(clear)
        def zero_grad(optimizer, *args, **kwargs):
            self.begins(used=False)
            with self.clearing():
                return clear(optimizer, *args, **kwargs)

        @functools.wraps(clear_module)
        def zero_grad_of_module(module, *args, **kwargs):
            self.begins(used=False)
            with self.clearing():
                return clear_module(module, *args, **kwargs)

        call = torch.nn.Module.__call__

        @functools.wraps(call)
        def module_called(module, *args, **kwargs):
            if transforms.running():
                return call(module, *args, **kwargs)
            run = functools.partial(call, module, *args, **kwargs)
            if any(map(is_lazy, module.parameters())):  # no step yet: it makes its parameters
                return run()
            self.begins()
            if self.recorder is not None and not self.recorder.in_module:
                self.roles.watch_batch(self.batch.goes_on())
                self.roles.note_batch((args, kwargs))
            if self._inside or not any(True for _ in module.parameters()):
                return run()
            self._inside = True
            try:
                return self._calls_model(run, (args, kwargs))
            finally:
                self._inside = False

        with (
            replaced(cls, zero_grad=zero_grad, __init__=optimizer_made),
            replaced(torch.nn.Module, zero_grad=zero_grad_of_module, __call__=module_called),
            self.updates.backwards(),
            self.updates.sources.gathers(self.uses),
            transforms.by_autograd(self.differentiates),
            self._loading(),
            _Watch(self),
        ):
            hooks = [
                optimizers.register_optimizer_step_pre_hook(self._before_step),
                optimizers.register_optimizer_step_pre_hook(self._outside_of_update),
                optimizers.register_optimizer_step_post_hook(self._after_step),
            ]
            try:
                yield
            finally:
                for hook in hooks:
                    hook.remove()

    def _calls_model(self, run, arguments):
        """A module is called by the script, not by another module; of a script that does not train,
        such a call is what is recorded."""
        self.calls += 1
        if not self.inference or self.calls != self.number:
            return run()
        self._start()
        self.roles.note_batch(arguments)
        result = run()
        with torch._C.DisableTorchFunction():
            for one in torch.utils._pytree.tree_leaves(result):
                if isinstance(one, torch.Tensor) and type(one) is not DTensor:
                    self.recorder.output(one, "output")
        self.finish()
        return result

    @property
    def trains(self) -> bool:
        """Whether the script has asked for a gradient, or stepped an optimizer."""
        return self.updates.asked or not self.by_hand

    def clears(self, args) -> bool:
        """Whether gradients are cleared by hand; a step begins there."""
        if self.over or self.given or self.by_hand or not self.between:
            return False
        listed = args[0] if args and isinstance(args[0], (list, tuple)) else args[:1]
        if not roles.clears_gradients(list(listed)):
            return False
        self.begins(used=False)
        return self.recorder is not None

    def clearing(self):
        recording = self.recorder is not None and self.batch is not None and self.batch.is_open
        return self.batch.clearing() if recording else contextlib.nullcontext()

    @contextlib.contextmanager
    def here(self):
        """Records what runs inside as the step."""
        self.given = True
        with self.watched():
            self._start()
            try:
                yield
                self.finish()
            finally:
                self._recording.close()

    @contextlib.contextmanager
    def part(self, start: str, until: str | None):
        """Records what the script runs from one place to another, the `number`th time."""
        self.given, self._part = True, locations.Passages(start, until)

        def passed(which: str) -> None:
            counted = self._part.count[start]
            if which == start and counted == self.number and self.recorder is None:
                self._start()
            elif which == until and self.recorder is not None:
                self.finish()

        with self.watched(), self._part.watched(passed):
            yield

    def part_reached(self) -> str:
        """What a script that has ended has reached of the part to record."""
        times = self._part.count[self._part.start]
        return f"it has reached {self._part.start} {times} of {self.number} times"

    def _before_step(self, optimizer, args, kwargs) -> None:
        if self.recorder is None:
            return
        if self._in_first_round and optimizer in self.counts and self._again and not self.given:
            # It steps again before another one has stepped once, which is not used: the step that
            # is recorded was over where this one began.
            operations, losses = self._again
            del self.recorder.program.ops[operations:], self.losses[losses:]
            self._ended = True
            self.finish()
            return
        if self.number > 1 and optimizer not in self.counts:
            # An optimizer that has its first step now: the recorded step is one that has them all.
            self._recording.close()
            self.recorder = None
            return
        self._enter_update()

    def _enter_update(self) -> None:
        if self.recorder is not None:
            self._section.enter_context(self.recorder.section("optimizer", "opt"))

    def _outside_of_update(self, optimizer, args, kwargs):
        """The arguments of `step`, where a closure is forward and backward, not the update."""

        def wrapped(closure):
            if not callable(closure) or closure is optimizer:
                return closure

            def called():
                self._section.close()
                try:
                    return closure()
                finally:
                    self._enter_update()

            return called

        return tuple(map(wrapped, args)), {key: wrapped(kwargs[key]) for key in kwargs}

    def _after_step(self, optimizer, args, kwargs) -> None:
        self._section.close()
        if not self.counts:
            self._held = set(roles.optimizers())
        self.counts[optimizer] = self.counts.get(optimizer, 0) + 1
        self.updates.forget()
        self._again = None

    # The recording.

    def _start_anew(self) -> None:
        """What came so far, such as the gather of parameters after an update, is no part of this
        step."""
        self._recording.close()
        self._start(self.batch.restarts + 1)

    def _start(self, restarts: int = 0) -> None:
        if self.at_first is not None:
            at_first, self.at_first = self.at_first, None
            at_first()
        if not self.given:  # steps that were taken before one could begin are not recorded
            self.number = max(self.number, self.taken + 1)
        mesh = axes.mesh(self.seen, self.job, self.observed.get("axes"))
        recorder = self.recorder = Recorder(mesh, self.job.rank)
        recorder.whole_stack = not self.given
        recorder.refusals = []
        self.losses = []
        with recorder.hidden():
            asked = self.given or self.by_optimizers
            by_hand = self.by_hand and not (asked and roles.optimizers())
            updates = self.updates if by_hand else None
            self.roles = roles.Roles(recorder, self.seen, self.observed, updates, self.models)
        if self.at_step is not None:
            self.recorder, self.over = None, True
            self.at_step(self.roles)
            return
        self.batch = Batch(recorder, restarts)
        if self.digests:
            self.roles.digests = []
            self.roles.initial = self.initial or {}
            self.roles.initial_buffers = self.initial_buffers
        self.roles.separate, self.roles.taken = self.separate, self.parts
        enter = self._recording.enter_context
        enter(megatron.fused_norm())
        sharded = [
            module
            for root in self.roles.roots
            for module in root.modules()
            if isinstance(module, torch.distributed.fsdp.FSDPModule)
        ]
        for wrapped in self.seen.replicas:
            enter(ddp.recorded(recorder, wrapped))
        if sharded:
            enter(fsdp.recorded(recorder, fsdp.along_groups(recorder)))
        if flat := [root for root in self.roles.roots if fsdp1.modules(root)]:
            enter(fsdp1.recorded(recorder, flat))
        enter(dtensors.recorded(recorder))
        enter(recorder.recording(self.roles.roots[0] if self.roles.roots else None))
        self.composites = Composites(recorder)
        self._recording.callback(setattr, self, "composites", None)
        enter(self._backwards())
        enter(self._clipping())

    @contextlib.contextmanager
    def _backwards(self):
        """A backward of the script is one of the recorder."""
        original = torch.autograd.backward

        @functools.wraps(original)
        def backward(
            tensors, grad_tensors=None, retain_graph=None, create_graph=False, inputs=None
        ):
            if self._in_backward or self.recorder.is_hidden:
                return original(tensors, grad_tensors, retain_graph, create_graph, inputs=inputs)
            if not isinstance(tensors, torch.Tensor):
                edges = [
                    one for one in tensors if isinstance(one, torch.autograd.graph.GradientEdge)
                ]
                if edges:
                    words = {
                        "retain_graph": retain_graph,
                        "create_graph": create_graph,
                        "inputs": inputs,
                    }
                    run = functools.partial(original, tensors, grad_tensors, **words)
                    return self.recorder.backward_from(edges, run)
                if len(tensors) != 1:
                    tensors, grad_tensors = [_sum_of(tensors, grad_tensors)], None
                (tensors,), grad_tensors = tensors, (grad_tensors or [None])[0]
            words = {"gradient": grad_tensors, "retain_graph": retain_graph}
            words |= {"create_graph": create_graph, "inputs": inputs}
            self._in_backward = True
            try:
                # What has a gradient already is no loss.
                loss = self._summed_loss(tensors) if grad_tensors is None else tensors
                return self.recorder.backward(loss, **words)
            finally:
                self._in_backward = False

        compute = torch.autograd.grad

        @functools.wraps(compute)
        def grad(outputs, inputs, *args, **kwargs):
            edge = torch.autograd.graph.GradientEdge
            given = [inputs] if isinstance(inputs, (torch.Tensor, edge)) else list(inputs)
            known = self._in_backward or self.recorder.is_hidden or kwargs.get("create_graph")
            roots = [outputs] if isinstance(outputs, (torch.Tensor, edge)) else list(outputs)
            leaves = [_leaf(one) for one in given]
            by_edges = any(isinstance(one, edge) for one in (*roots, *given))
            begun = (args or (kwargs.get("grad_outputs"),))[0] is not None
            if known or (not by_edges and (len(roots) > 1 or None in leaves)):
                return compute(outputs, inputs, *args, **kwargs)
            self._in_backward = True
            try:
                if not begun and len(roots) == 1:
                    outputs = self._summed_loss(roots[0])
                    roots = [outputs]
                run = functools.partial(compute, outputs, inputs, *args, **kwargs)
                return self.recorder.gradients(roots, leaves, run)
            finally:
                self._in_backward = False

        with replaced(torch.autograd, backward=backward, grad=grad):
            yield

    def _summed_loss(self, loss: torch.Tensor) -> torch.Tensor:
        """Each rank with a batch of its own begins a backward: what they begin with is a sum."""
        name, together = f"loss.{len(self.losses)}", []
        if isinstance(loss, DTensor):
            # On the axes of its mesh all ranks begin one backward together.
            if not all(placement.is_replicate() for placement in loss.placements):
                self.losses.append(loss._local_tensor)
                return loss
            together = dtensors.axes_of_mesh(self.recorder, loss)
            loss = loss.to_local()
        self.roles.note("loss", name, loss)
        for axis in [one for one in self.roles.data_axes if one not in together]:
            whole = axis in self.observed.get("whole", {}).get(name, [])
            loss = reinterpret(loss, axis, src="R" if whole else "V", dst="P")
        self.losses.append(loss)
        return loss

    @contextlib.contextmanager
    def _loading(self):
        """What a loader does to give a batch is no part of the step."""
        iterator = torch.utils.data.dataloader._BaseDataLoaderIter
        following = iterator.__next__

        def next_batch(loading):
            self.makes_batch()
            if self.recorder is None or self.batch is None:
                return following(loading)
            return self.batch.draws(lambda: following(loading))

        with replaced(iterator, __next__=next_batch):
            yield

    @contextlib.contextmanager
    def _clipping(self):
        module = torch.nn.utils
        clip = module.clip_grad_norm_

        @functools.wraps(clip)
        def clip_grad_norm_(*args, **kwargs):
            with self.recorder.section("clip", "opt"):
                return clip(*args, **kwargs)

        with replaced(module, clip_grad_norm_=clip_grad_norm_):
            with replaced(module.clip_grad, clip_grad_norm_=clip_grad_norm_):
                yield

    def ends(self) -> None:
        """The script is over."""
        self._ended = True
        self.finish()

    def finish(self) -> None:
        """Ends the recording, if the step is complete, and hands the program on."""
        if self.over:
            return
        if self.by_hand and not self.given:
            self.updates.look()
        if self.recorder is None or (self.taken < self.number and not self.given):
            return
        self.batch.goes_on(at_the_end=True)
        for loss in self.losses:
            self.recorder.output(loss, "loss")
        self.roles.name_state()
        self.roles.write_outputs()
        self.roles.note_random()
        self.roles.note_counts()
        self.roles.type_literals()
        self.roles.make_counting()
        self.roles.expand_repeated()
        self.roles.forget_cleared()
        # What writes the trace is no part of the step.
        self._recording.enter_context(self.recorder.hidden())
        program = self.recorder.program
        program.mesh.mark(self.roles.data_axes, "data")
        program.stepped = not self.by_hand and self.taken >= self.number
        if not self.given:
            leave_out(program, self.batch)
        _name_phases(program.ops)
        self.messages = messages.log(program)
        if plan := self.observed.get("plan"):
            try:
                messages.permute(program, plan)
            except messages.Unmatched as error:
                place = self.messages[0]["place"] if self.messages else ""
                remedy = "record one rank of its own: --ranks one"
                self.recorder.refusals.append(Refusal(place, str(error), remedy))
        self.roles.type_messages()
        parts, exchanges = ownparts.found(program), messages.exchanges(program)
        self.roles.note_parts([*parts, *exchanges])
        numbers = Numbers(program, self.batch.ops)
        self.roles.note_numbers(numbers.named)
        messages.turn(program, exchanges, self.observed.get("turns", {}))
        orders = (self.observed.get(name, {}) for name in ("steps", "turns"))
        ownparts.convert(program, parts, self.roles.kinds, *orders)
        if not self.given:
            self.roles.take_batch(numbers.own(self.roles.kinds))
            leave_out(program, self.batch)
        self.exchanged = evidence.exchanged(program)
        evidence.take_hooks(program)
        self.summed = evidence.summed(program)
        if self.inference:  # no gradient tells how copies are used
            along = [axis.name for axis in program.mesh.axes]
            self.summed = {value.claims["name"]: along for value in program.params}
        self.roles.take_whole_gradients(self.summed)
        dtensors.state_sums(program)
        mappings.state(program)
        for op in program.ops:
            if op.name.rstrip("_") == "reduce":  # only its root has the sum
                for value in op.outs:
                    value.claims["type"] = dict.fromkeys(program.axes_of(op), "?")
        self.done(self.recorder)
        self.over = True
        self._recording.close()
        self.recorder = None


def _name(func) -> str:
    return getattr(func, "__name__", "")


def _leaf(given) -> torch.Tensor | None:
    """The leaf that a gradient is asked for, by itself or by its place in autograd; else None."""
    if isinstance(given, torch.autograd.graph.GradientEdge):
        return getattr(given.node, "variable", None)
    return given if given.is_leaf else None


def _sum_of(tensors, gradients) -> torch.Tensor:
    """One loss whose backward is that of several values at once, with their gradients if given."""
    given = [None] * len(tensors) if gradients is None else list(gradients)
    losses = [one if by is None else (one * by).sum() for one, by in zip(tensors, given)]
    return functools.reduce(torch.add, losses)


def _name_phases(ops: list) -> None:
    """What the program does after its last backward belongs to the optimizer."""
    last = max((place for place, op in enumerate(ops) if op.phase == "bwd"), default=len(ops))
    for op in ops[last:]:
        if op.phase == "fwd":
            op.phase, op.grad = "opt", False
