"""What a rank calls that others have to call with it: a line for each collective, before it runs.

The lines of all ranks are compared while they run (`spmd_trace.divergence`): a rank that waits for
one that does not come has no other way to tell where it is.
"""

import contextlib
import functools
import itertools
import json
import pathlib
import weakref

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DistributedSampler

from ...locations import relative_path
from .. import locations
from ..communication import collectives
from ..frameworks.cpu import replaced
from ..values import DTYPES

# What must be the same on all ranks of a group: by the name below c10d, that of the function in
# torch.distributed and the argument whose shapes have to agree. Blocks of `all_to_all` may differ.
_CALLS = {
    "allreduce_": ("all_reduce", "tensors"),
    "allreduce_coalesced_": ("all_reduce_coalesced", "tensors"),
    "broadcast_": ("broadcast", "tensors"),
    "reduce_": ("reduce", "tensors"),
    "allgather_": ("all_gather", "output_tensors"),
    "_allgather_base_": ("all_gather_into_tensor", "input_tensor"),
    "allgather_into_tensor_coalesced_": ("all_gather_into_tensor", "inputs"),
    "allgather_coalesced_": ("all_gather_coalesced", "input_list"),
    "reduce_scatter_": ("reduce_scatter", "input_tensors"),
    "_reduce_scatter_base_": ("reduce_scatter_tensor", "output_tensor"),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter_tensor", "outputs"),
    "gather_": ("gather", "input_tensors"),
    "scatter_": ("scatter", "output_tensors"),
    "alltoall_base_": ("all_to_all_single", None),
    "alltoall_": ("all_to_all", None),
    "barrier": ("barrier", None),
    "monitored_barrier_": ("monitored_barrier", None),
}
_FUNCTIONAL = {
    "all_reduce": "input",
    "all_reduce_coalesced": "inputs",
    "all_gather_into_tensor": "input",
    "all_gather_into_tensor_coalesced": "inputs",
    "reduce_scatter_tensor": "input",
    "reduce_scatter_tensor_coalesced": "inputs",
    "broadcast": "input",
    "all_to_all_single": None,
}
# By operation: the call, and which way and which argument say from or to which rank.
_MESSAGES = {
    "send": ("send", "to", "dst"),
    "recv_": ("recv", "from", "src"),
    "recv_any_source_": ("recv", "from", None),
}


class Log:
    """The calls of one rank, in a file that another process reads while they are made."""

    def __init__(self, file: pathlib.Path):
        self._file = open(file, "w", encoding="utf-8")
        self.called: set[str] = set()

    def add(self, call: str, group: list, about: str = "", message: dict | None = None) -> None:
        """`group`: a name and its ranks; `about`: what has to be the same on all of them;
        `message`: of one from rank to rank, the other rank (none: any), its tag and its size.
        """
        self.called.add(call)
        row = {"call": call, "group": group, "about": about, "stack": _stack()}
        self._write(row | ({"message": message} if message else {}))

    def choose(self, call: str, about: str, stack: list[dict]) -> None:
        """What a rank chooses by itself, and all that choose have to choose alike."""
        row = {"call": call, "group": [call, []], "about": about, "stack": stack}
        self._write(row | {"chosen": True})

    def goes_on(self, file: pathlib.Path) -> None:
        """In a fork: what is called from here on is another run's."""
        self._file = open(file, "w", encoding="utf-8")

    def end(self) -> None:
        """The script is over."""
        self._write({"end": True})

    def _write(self, row: dict) -> None:
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()


def _stack() -> list[dict]:
    """The frames of the script, innermost first."""
    found = []
    for frame in locations.user_frames():
        line, col, end = locations._position(frame.f_code, frame.f_lasti)
        path = frame.f_code.co_filename
        name = locations.qualified_name(frame.f_code)
        one = {"file": relative_path(path), "path": path, "func": name}
        found.append(one | {"line": line, "col": col, "end": end})
    return found


def _shapes(item) -> str:
    """`f32[4, 2], i64[1]`, as far as there are tensors."""
    if isinstance(item, torch.Tensor):
        return f"{DTYPES.get(item.dtype, item.dtype)}{list(item.shape)}"
    if isinstance(item, (list, tuple)):
        texts = [_shapes(one) for one in item]
        counted = [(text, len(list(same))) for text, same in itertools.groupby(texts)]
        return ", ".join(text if n == 1 else f"{n} x {text}" for text, n in counted if text)
    return ""


def _sizes(tensors: list[torch.Tensor]) -> list:
    """What has to be equal where a message is sent and where it is received."""
    return [[DTYPES.get(one.dtype, str(one.dtype)), one.numel()] for one in tensors]


class Watched(TorchDispatchMode):
    """Writes down the collectives of a script, also those that torch calls below Python."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled

    def __init__(self, log: Log):
        super().__init__()
        self.log = log

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        # What a wrapper does to the tensors inside is dispatched again.
        if any(issubclass(kind, (DTensor, AsyncCollectiveTensor)) for kind in types):
            return NotImplemented
        if func.namespace == "c10d":
            self._note(func, args, kwargs or {})
        elif func.namespace == "_c10d_functional":
            self._note_functional(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))

    def _note(self, func, args, kwargs) -> None:
        given = {a.name: v for a, v in zip(func._schema.arguments, args)} | kwargs
        name = func._schema.name.removeprefix("c10d::")
        group = dist.ProcessGroup.unbox(given["process_group"])
        if name in _MESSAGES:
            call, way, peer = _MESSAGES[name]
            message = {"peer": None, "tag": given["tag"], "size": _sizes(given["tensors"])}
            about = [_shapes(given["tensors"])]
            if peer is not None:
                message["peer"] = dist.get_global_rank(group, given[peer])
                about.append(f"{way} rank {message['peer']}")
            about += [f"tag {given['tag']}"] if given["tag"] else []
            self.log.add(call, _named(group), ", ".join(about), message)
        elif name in _CALLS and group.size() > 1:
            call, argument = _CALLS[name]
            words = [_shapes(given[argument])] if argument else []
            if "reduce_op" in given:
                words.append(collectives.reduction(given["reduce_op"]).lower())
            if name in ("broadcast_", "reduce_", "gather_", "scatter_"):
                words.append(f"root {dist.get_global_rank(group, given['root_rank'])}")
            self.log.add(call, _named(group), ", ".join(words))

    def _note_functional(self, func, args, kwargs) -> None:
        given = {a.name: v for a, v in zip(func._schema.arguments, args)} | kwargs
        name = func._schema.name.split("::")[1].removesuffix("_out").removesuffix("_")
        if name not in _FUNCTIONAL:
            return
        group = given["group_name"]
        if isinstance(group, str):
            group = dist.distributed_c10d._resolve_process_group(group)
        if group.size() > 1:
            words = [_shapes(given[_FUNCTIONAL[name]])] if _FUNCTIONAL[name] else []
            words += [str(given["reduce_op"]).lower()] if "reduce_op" in given else []
            words += [f"root {given['src']}"] if name == "broadcast" else []
            self.log.add(name, _named(group), ", ".join(words))


def _named(group) -> list:
    return [group.group_name, dist.get_process_group_ranks(group)]


@contextlib.contextmanager
def _samplers(log: Log):
    """Ranks take parts of one order of the samples, which each of them makes by itself."""
    make, iterate = DistributedSampler.__init__, DistributedSampler.__iter__
    made: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()

    @functools.wraps(make)
    def __init__(sampler, *args, **kwargs):
        make(sampler, *args, **kwargs)
        made[sampler] = _stack()

    @functools.wraps(iterate)
    def __iter__(sampler):
        words = [f"{len(sampler.dataset)} samples in {sampler.num_replicas} parts"]
        if sampler.shuffle:
            words += [f"seed {sampler.seed}", f"epoch {sampler.epoch}"]
        log.choose("DistributedSampler", ", ".join(words), made.get(sampler, []))
        return iterate(sampler)

    with replaced(DistributedSampler, __init__=__init__, __iter__=__iter__):
        yield


@contextlib.contextmanager
def watched(log: Log, world: int, everywhere):
    """Writes down what the script calls together with other ranks, while the context lasts.

    `everywhere(stack, original, replacement)` replaces a function in all modules that have it.
    """

    def noting(original):
        def wrapper(*args, **kwargs):
            ranks = kwargs.get("ranks", args[0] if args else None)
            about = str(list(ranks)) if isinstance(ranks, (list, tuple, range)) else ""
            # All ranks have to be there, those that will not be in the group as well.
            log.add(original.__name__, [original.__name__, list(range(world))], about)
            return original(*args, **kwargs)

        return wrapper

    with contextlib.ExitStack() as stack:
        for function in (dist.init_process_group, dist.new_group):
            everywhere(stack, function, noting(function))
        stack.enter_context(_samplers(log))
        stack.enter_context(Watched(log))
        yield
