"""Large tensors without memory: each has a shape, and a fingerprint that says how it came about.

What is small, such as a batch of tokens, a number of a schedule or the state of a sampler, is there
and is computed, as long as it does not depend on what is not. A program that takes a branch or a
size from values that are not there is refused (`Missing`), but for checks that all numbers are
finite: these are taken to hold.
"""

import contextlib
import dataclasses
import functools
import hashlib
import math

import torch
import torch._guards
import torch.distributed as dist
import torch.utils.flop_counter
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from .. import versions
from ..frameworks.cpu import replaced
from ..hostnumbers import Missing, Unknown
from ..values import raw_bytes
from .fingerprints import Handle, Node, Table
from .shapefuncs import Call, Functions, tensors_of

_NUMBER = torch.ops.aten._local_scalar_dense.default
_SCALER = torch.ops.aten._amp_foreach_non_finite_check_and_unscale_.default
_TYPES = {torch.Tensor, FakeTensor, torch.nn.Parameter, torch.nn.Buffer}
_LARGE = 1 << 20  # elements of a tensor of floating point numbers
_LARGE_WHOLE = 1 << 22  # and of others, such as tokens
_SMALL_INPUT = 1 << 10  # elements of which nothing large is made
_LOOKS = 4096  # operations between two looks at what is still there

# Whether some number is not finite, which is taken to be false, and what is made of that.
_NOT_FINITE = {
    "isnan": False,
    "isinf": False,
    "isfinite": True,
    "isposinf": False,
    "isneginf": False,
}
_LOGIC = dict.fromkeys("all logical_and bitwise_and mul clone _to_copy".split(), all)
_LOGIC |= dict.fromkeys("any logical_or bitwise_or stack cat".split(), any)
_LOGIC |= dict.fromkeys(["logical_not", "bitwise_not"], lambda below: not all(below))
_SHARED = set("allreduce_ allreduce_coalesced_ broadcast_ allgather_ _allgather_base_".split())
_SHARED |= set(
    "allgather_into_tensor_coalesced_ allgather_coalesced_ all_reduce all_reduce_".split()
)
_SHARED |= set(
    "all_gather_into_tensor all_gather_into_tensor_coalesced broadcast broadcast_".split()
)
_SHARED |= set("all_reduce_coalesced all_gather_into_tensor_out".split())
_NAMES_OF_OUTPUTS = ("output", "outputs", "output_tensor", "output_tensors", "output_lists")


_mode: "Shapes | None" = None


def handle(tensor: torch.Tensor) -> Handle | None:
    """How the content of a tensor came about, where it is not there or came out of a collective."""
    return _mode.table.handle(tensor) if _mode is not None else None


def is_missing(tensor: torch.Tensor) -> bool:
    """Whether the values of a tensor are not there."""
    if _mode is None:
        return False
    tensor = getattr(tensor, "_local_tensor", getattr(tensor, "elem", tensor))  # of what wraps one
    return isinstance(tensor, FakeTensor) or _mode.table.is_missing(tensor)


@dataclasses.dataclass
class Cost:
    """What the program would need with all of its values."""

    bytes: int = 0  # at most at one time
    flops: int = 0
    operations: int = 0
    large: bool = False  # whether any tensor is without values


class Shapes(TorchDispatchMode):
    """Runs operations without the values of large tensors."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled

    def __init__(self, rank: int, on_progress=lambda cost: None):
        super().__init__()
        self.rank = rank
        self.functions = Functions()
        self.table = Table()
        self.cost = Cost()
        self._flops: dict[tuple, int] = {}
        self._truths: dict[Node, bool] = {}  # what is taken to hold
        self._on_progress = on_progress

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(kind not in _TYPES for kind in types):
            return NotImplemented
        kwargs = kwargs or {}
        if func.namespace == "prim" or torch._guards.active_fake_mode() is not None:
            return func(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            return self._run(Call(func, args, kwargs))

    def _run(self, call: Call):
        self.cost.operations += 1
        if self.cost.operations % _LOOKS == 0:
            self.cost.bytes = max(self.cost.bytes, self.table.sizes())
            self._on_progress(self.cost)
        fake = [one for one in call.tensors if type(one) is FakeTensor]
        if any(one.fake_mode is not self.functions.mode for one in fake):
            return call.func(*call.args, **call.kwargs)
        if call.func.namespace == "c10d":
            return self._collective(call, bool(fake))
        if not fake:
            made = self._with_values(call)
            if made is not None:
                return made[0]
        return self._shapes(call)

    # What is there.

    def _with_values(self, call: Call):
        """Carries out an operation on values, unless it would make something large; its result in a
        tuple.
        """
        if call.func is _NUMBER and is_missing(call.tensors[0]):
            raise Missing("a number of the program")
        meta = any(one.device.type == "meta" for one in call.tensors)
        if meta and not _is_of_cpu(call.kwargs.get("device")):
            return (call.func(*call.args, **call.kwargs),)
        if self._makes_large(call):
            return None
        sources = [one for one in call.tensors if self.table.find(one) is not None]
        missing = any(map(self.table.is_missing, sources))
        # What lies in memory in place of a value is of no use; views and writes are of memory.
        if missing and (call.makes_new or call.func is _SCALER):
            return None
        operands = [self.table.operand(one) for one in call.tensors] if sources else []
        result = call.func(*call.args, **call.kwargs)
        if sources:
            self._note(call, operands, result, missing)
        return (result,)

    def _makes_large(self, call: Call) -> bool:
        """Whether the result of an operation would be large."""
        schema = call.func._schema
        if not call.makes_new:
            return False
        if call.tensors and sum(one.numel() for one in call.tensors) <= _SMALL_INPUT:
            return False
        if not schema.returns or "Tensor" not in str(schema.returns[0].type):
            return False
        if not call.tensors and not _is_of_cpu(call.kwargs.get("device")):
            return False
        try:
            made = self.functions.result(call)
        except Exception:  # such as a result whose size depends on values, which are there
            return False
        return any(map(_is_large, tensors_of(made)))

    # What is not.

    def _shapes(self, call: Call):
        """Carries out an operation on shapes."""
        if call.func is _NUMBER:
            raise Missing("a number of the program")
        operands = [self.table.operand(one) for one in call.tensors]
        result = self.functions.result(call)
        self.cost.large = True
        self.cost.flops += self._flops_of(call, result)
        self._note(call, operands, result, True)
        return result

    def _flops_of(self, call: Call, result) -> int:
        count = torch.utils.flop_counter.flop_registry.get(call.func._overloadpacket)
        if count is None:
            return 0
        if call.key not in self._flops:
            try:
                self._flops[call.key] = int(count(*call.args, **call.kwargs, out_val=result))
            except Exception:  # what torch cannot count
                self._flops[call.key] = 0
        return self._flops[call.key]

    def _note(self, call: Call, operands, result, missing: bool) -> None:
        storages = {one.untyped_storage()._cdata for one in call.tensors}
        made = [one for one in tensors_of(result) if one.untyped_storage()._cdata not in storages]
        written = call.written if call.func._schema.is_mutable else []
        if not made and not written:
            return
        if call.func is _SCALER:  # found_inf stays as it is: all numbers are finite
            written = [pair for pair in written if pair[0] is not call.args[1]]
        unread = {id(one) for one, reads in written if not reads}
        operands = [of for of, one in zip(operands, call.tensors) if id(one) not in unread]
        written = [one for one, _ in written]
        if call.func.namespace == "_c10d_functional":
            return self._functional(call, operands, made, written, missing)
        words = str(call.key[1:])
        if torch.Tag.nondeterministic_seeded in call.func.tags:
            words += _draw(call.generator)
        self.table.made(call.func, words, operands, made, written, missing)
        self._note_truth(call, operands, made)

    def _note_truth(self, call: Call, operands, made) -> None:
        name = call.func._schema.name.removeprefix("aten::")
        if len(made) != 1:
            return
        below = [self._truths.get(node) for node, _ in operands]
        truth = None
        if name in _NOT_FINITE:
            truth = _NOT_FINITE[name]
        elif name in ("eq", "ne") and _asks_whether_finite(call):
            # A number is itself, and no infinity.
            truth = (name == "eq") == (len(call.tensors) == 2)
        elif name in _LOGIC and None not in below and below:
            truth = _LOGIC[name](below)
        if truth is not None:
            self._truths[self.table.find(made[0])] = truth

    def truth(self, tensor: torch.Tensor) -> bool | None:
        """What a value is taken to be, if it tells of numbers that are not finite."""
        return self._truths.get(self.table.find(tensor))

    # Collectives.

    def _collective(self, call: Call, fake: bool):
        arguments = call.func._schema.arguments
        given = {one.name: value for one, value in zip(arguments, call.args)} | call.kwargs
        name = call.func._schema.name.removeprefix("c10d::")
        operands = [self.table.operand(one) for one in call.tensors]
        outputs = _NAMES_OF_OUTPUTS if name == "send" else (*_NAMES_OF_OUTPUTS, "tensors")
        written = [one for key in outputs if key in given for one in tensors_of(given[key])]
        missing = fake or any(map(is_missing, call.tensors))
        if fake:
            result = versions.done(call.func, given, call.tensors)
        else:
            result = call.func(*call.args, **call.kwargs)
        group = dist.ProcessGroup.unbox(given["process_group"])
        self._after(name, group, operands, [(one, missing) for one in written])
        return result

    def _functional(self, call: Call, operands, made, written, missing: bool) -> None:
        name = call.func._schema.name.removeprefix("_c10d_functional::")
        outs = [(one, missing) for one in [*made, *written]]
        named = {one.name: place for place, one in enumerate(call.func._schema.arguments)}
        if "group_name" not in named:  # it waits for one
            return self.table.made(call.func, "", operands, made, written, missing)
        group = call.args[named["group_name"]]
        if isinstance(group, str):
            group = dist.distributed_c10d._resolve_process_group(group)
        return self._after(name, group, operands, outs)

    def _after(self, name, group, operands, written) -> None:
        ranks = tuple(dist.get_process_group_ranks(group))
        if written and len(ranks) > 1:
            self.table.collective(name, ranks, name in _SHARED, self.rank, operands, written)


def _asks_whether_finite(call: Call) -> bool:
    """Whether numbers are compared with themselves, which tells what is none, or with infinity."""
    by = call.args[1]
    return call.args[0] is by if isinstance(by, torch.Tensor) else by in (math.inf, -math.inf)


def _is_of_cpu(device) -> bool:
    return device is None or torch.device(device).type == "cpu"


def _is_large(tensor: torch.Tensor) -> bool:
    return tensor.numel() > (_LARGE if tensor.is_floating_point() else _LARGE_WHOLE)


def _draw(generator: torch.Generator | None) -> str:
    """The state of the generator that is drawn from, which goes on."""
    generator = generator or torch.default_generator
    state = hashlib.blake2b(raw_bytes(generator.get_state()), digest_size=12).hexdigest()
    torch.empty(1).uniform_(generator=generator)
    return f" {state}"


@contextlib.contextmanager
def without_values(rank: int, on_progress=lambda cost: None):
    """Gives large tensors no values, for the time of the context; what the program costs."""
    global _mode
    _mode = mode = Shapes(rank, on_progress)
    methods = {name: _asking(name, *how) for name, how in _ASKED.items()}
    parallel = torch.nn.parallel.distributed
    verify = "_verify_param_shape_across_processes"
    try:
        with (
            replaced(torch.Tensor, **methods),
            replaced(torch.utils, swap_tensors=_swapped(torch.utils.swap_tensors)),
            replaced(parallel, **{verify: _not_of_shapes(getattr(parallel, verify))}),
            mode,
        ):
            yield mode.cost
    finally:
        mode.cost.bytes = max(mode.cost.bytes, mode.table.sizes())
        _mode = None


def _swapped(swap):
    """Modules that move swap FakeTensors, which works while nobody else refers to them."""

    @functools.wraps(swap)
    def wrapper(tensor, other):
        if not (isinstance(tensor, FakeTensor) and isinstance(other, FakeTensor)):
            return swap(tensor, other)
        tensor.data = other.detach()

    return wrapper


def _not_of_shapes(verify):
    """A comparison with other ranks that reads memory, and that ranks which move no data cannot
    make.
    """

    @functools.wraps(verify)
    def wrapper(group, tensors, *args, **kwargs):
        if not any(map(is_missing, tensors)):
            return verify(group, tensors, *args, **kwargs)

    return wrapper


def _asking(name: str, what: str, answer):
    """A method that asks for values; `answer` gives what stands for them, if something does."""
    original = getattr(torch.Tensor, name)

    @functools.wraps(original)
    def method(tensor, *args, **kwargs):
        if not is_missing(tensor):
            return original(tensor, *args, **kwargs)
        truth = _mode.truth(tensor)
        if truth is not None and name in ("item", "__bool__", "__float__", "__int__"):
            return {"__float__": float, "__int__": int}.get(name, bool)(truth)
        if answer is None or tensor.numel() != 1:
            raise Missing(what)
        return answer(tensor)

    return method


# By method: what the program asks for, and what it gets.
_ASKED = {
    "item": ("a number of the program", lambda tensor: Unknown()),
    "__float__": ("a number of the program", lambda tensor: 1.0),
    "__format__": ("a text of the program", lambda tensor: "?"),
    "__bool__": ("a branch of the program", None),
    "__int__": ("a whole number of the program", None),
    "__index__": ("a size of the program", None),
    "tolist": ("a list of the program", None),
    "numpy": ("an array of the program", None),
}
