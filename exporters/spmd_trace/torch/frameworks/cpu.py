"""Runs code written for one GPU per rank in one process on the CPU.

A fake process group stands for the other ranks: its collectives move no data. Calls into the CUDA
runtime become calls on CPU tensors or do nothing.
"""

import collections
import contextlib
import functools
import sys
import types

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from .. import locations, versions
from .. import recorder as recording
from ..communication import collectives


class _Idle:
    """A stream, a graph or another object whose methods have nothing to do."""

    def __init__(self, *args, **kwargs):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: _Idle()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False


class _Stream(_Idle):
    """What is put on a stream, or between two events, is done at once."""

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False


class _Event(_Stream):
    """A moment on a stream."""

    def elapsed_time(self, end) -> float:
        return 0.0


def _off_cuda(device):
    """A device as the program names it, by the CPU where it is a GPU; numbers are GPUs."""
    if device is None or isinstance(device, bool):
        return device
    # A number is a GPU; without one some versions of torch do not make a device of it.
    return "cpu" if type(device) is int or torch.device(device).type == "cuda" else device


class _OnCpu(TorchFunctionMode):
    """Rewrites devices in calls that create or move tensors."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if "device" in kwargs:
            kwargs["device"] = _off_cuda(kwargs["device"])
        place = {torch.Tensor.to: 1, torch._C._nn._parse_to: 0}.get(func, len(args))
        if place < len(args):
            target = args[place]
            if isinstance(target, (str, torch.device)) or type(target) is int:
                args = (*args[:place], _off_cuda(target), *args[place + 1 :])
        return func(*args, **kwargs)


def _with_hooks(engine, mode: _OnCpu):
    """Runs a backward under a mode, since its hooks ask for GPUs, too: the call of the backward has
    gone through the mode, which is off there."""

    @functools.wraps(engine)
    def run_backward(*args, **kwargs):
        with mode:
            return engine(*args, **kwargs)

    return run_backward


def _type_name(tensor, dtype=None, **kwargs):
    """`Tensor.type()` names the device; code for GPUs asks for the CUDA name."""
    if dtype is not None:
        return tensor.to(dtype)
    with torch._C.DisableTorchFunction():
        name = torch._C.TensorBase.type(tensor)
    return name.replace("torch.", "torch.cuda.", 1)


def _type_of(tensor, dtype=None, *args, **kwargs):
    """As `Tensor.type`: packages that ask for the name of a type expect tensors on a GPU."""
    if isinstance(dtype, type):  # such as torch.cuda.FloatTensor
        dtype = f"torch.{dtype.__name__}"
    if isinstance(dtype, str):
        dtype = dtype.replace("torch.cuda.", "torch.")
    if dtype is not None or locations.is_own_frame(sys._getframe(1)):
        return torch._C.TensorBase.type(tensor, dtype, *args, **kwargs)
    return _type_name(tensor)


def _nothing(*args, **kwargs) -> None:
    """A call that has no effect on a CPU."""


def _zero(*args, **kwargs) -> int:
    return 0


def _one(result):
    """A call that always gives `result`."""
    return lambda *args, **kwargs: result


_MEMORY = 80 << 30
_PROPERTIES = types.SimpleNamespace(
    name="a GPU simulated by the CPU",
    major=9,
    minor=0,
    total_memory=_MEMORY,
    multi_processor_count=132,
    warp_size=32,
    gcnArchName="",
)

_CUDA_CALLS = {
    "current_device": _one("cpu"),
    "set_device": _nothing,
    "synchronize": _nothing,
    "current_stream": lambda *args, **kwargs: _Stream(),
    "default_stream": lambda *args, **kwargs: _Stream(),
    "set_stream": _nothing,
    "stream": lambda stream: contextlib.nullcontext(),
    "device": lambda device: contextlib.nullcontext(),
    "Stream": _Stream,
    "Event": _Event,
    "get_rng_state": lambda *args, **kwargs: torch.get_rng_state(),
    "set_rng_state": lambda state, *args, **kwargs: torch.set_rng_state(state),
    "manual_seed": torch.manual_seed,
}

# What training scripts ask for besides; the packages that come with the recorder do not.
_SCRIPT_CALLS = {
    "is_available": _one(True),
    "is_initialized": _one(True),
    "init": _nothing,
    "is_bf16_supported": _one(True),
    "is_current_stream_capturing": _one(False),
    "get_device_name": _one(_PROPERTIES.name),
    "get_device_capability": _one((_PROPERTIES.major, _PROPERTIES.minor)),
    "get_device_properties": _one(_PROPERTIES),
    "get_arch_list": _one(["sm_90"]),
    "can_device_access_peer": _one(True),
    "cudart": lambda: _Idle(),
    "mem_get_info": _one((_MEMORY, _MEMORY)),
    "memory_stats": lambda *args, **kwargs: collections.defaultdict(int),
    "memory_summary": _one(""),
    "set_per_process_memory_fraction": _nothing,
    "get_rng_state_all": lambda: [torch.get_rng_state()],
    "set_rng_state_all": lambda states: torch.set_rng_state(states[0]),
    "manual_seed": torch.default_generator.manual_seed,  # torch.manual_seed calls the next one
    "manual_seed_all": torch.default_generator.manual_seed,
    "seed": torch.default_generator.seed,
    "seed_all": torch.default_generator.seed,
    "initial_seed": torch.initial_seed,
    "CUDAGraph": _Idle,
    "graph": lambda *args, **kwargs: contextlib.nullcontext(),
    "graph_pool_handle": _one((0, 0)),
    "make_graphed_callables": lambda callables, *args, **kwargs: callables,
    "ExternalStream": _Stream,
} | dict.fromkeys(["empty_cache", "ipc_collect", "reset_peak_memory_stats"], _nothing)
_SCRIPT_CALLS |= dict.fromkeys(
    ["reset_accumulated_memory_stats", "caching_allocator_delete"], _nothing
)
_SCRIPT_CALLS |= dict.fromkeys(["reset_max_memory_allocated", "reset_max_memory_cached"], _nothing)
_SCRIPT_CALLS |= dict.fromkeys(
    ["memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"], _zero
)
_SCRIPT_CALLS |= dict.fromkeys(["utilization", "temperature", "power_draw", "clock_rate"], _zero)
_NVTX = dict.fromkeys(["range_push", "range_pop", "range_start", "range_end"], _zero)
_NVTX |= {"mark": _nothing, "range": lambda *args, **kwargs: contextlib.nullcontext()}
_ACCELERATOR = {
    "is_available": _one(True),
    "current_accelerator": lambda *args, **kwargs: torch.device("cuda"),
    "set_device_index": _nothing,
    "set_device_idx": _nothing,
    "current_device_index": _zero,
    "current_device_idx": _zero,
    "synchronize": _nothing,
    "current_stream": lambda *args, **kwargs: _Stream(),
    "set_stream": _nothing,
    "empty_cache": _nothing,
    "reset_peak_memory_stats": _nothing,
    "memory_allocated": _zero,
    "max_memory_allocated": _zero,
}


@contextlib.contextmanager
def replaced(owner, **attributes):
    """Sets attributes of a module or class for the time of the context."""
    missing = object()
    before = {name: vars(owner).get(name, missing) for name in attributes}
    for name, value in attributes.items():
        # TorchDynamo takes two names of one function for a mistake of its tables.
        one_of_many = value is _nothing or value is _zero
        setattr(owner, name, functools.partial(value) if one_of_many else value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is missing:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


@contextlib.contextmanager
def cuda_on_cpu():
    """Answers CUDA calls on the CPU for the time of the context."""
    methods = {
        "cuda": lambda tensor, *args, **kwargs: tensor,
        "record_stream": lambda tensor, stream: None,
        "type": _type_name,
    }
    run = {
        "_engine_run_backward": _with_hooks(torch.autograd._engine_run_backward, mode := _OnCpu())
    }
    with replaced(torch.cuda, **_CUDA_CALLS), replaced(torch.Tensor, **methods), mode:
        with replaced(torch.autograd, **run):
            yield


class _InstancesOf(type):
    """Classes whose instances are those of the class that they stand for."""

    def __instancecheck__(cls, instance) -> bool:
        return isinstance(instance, cls.original)


class _Generator(metaclass=_InstancesOf):
    """`torch.Generator(device="cuda")` gives one of the CPU."""

    original = torch.Generator

    def __new__(cls, device="cpu"):
        return cls.original(_off_cuda(device))


def _device_first(original):
    """A constructor or function whose first argument names a type of device."""

    @functools.wraps(original)
    def method(self, device_type="cpu", *args, **kwargs):
        return original(self, str(_off_cuda(device_type)), *args, **kwargs)

    return method


@contextlib.contextmanager
def a_gpu_per_rank(count: int, local_rank: int):
    """As `cuda_on_cpu`, for a script that looks for its GPU: there are `count`, and one is its
    own."""
    available = {"device_count": _one(count), "current_device": _one(local_rank)}
    available["default_generators"] = (torch.default_generator,) * count
    calls = {name: call for name, call in _SCRIPT_CALLS.items() if hasattr(torch.cuda, name)}
    nvtx = {name: call for name, call in _NVTX.items() if hasattr(torch.cuda.nvtx, name)}
    accelerator = getattr(torch, "accelerator", None)
    asked = {name: call for name, call in _ACCELERATOR.items() if hasattr(accelerator, name)}
    # Some call them by the module that defines them.
    random = {name: call for name, call in (_CUDA_CALLS | calls).items()
              if hasattr(torch.cuda.random, name)}  # fmt: skip
    with contextlib.ExitStack() as stack:
        stack.enter_context(cuda_on_cpu())
        stack.enter_context(replaced(torch.cuda, **calls, **available))
        random["current_device"] = available["current_device"]
        stack.enter_context(replaced(torch.cuda.random, **random))
        stack.enter_context(replaced(torch.cuda.nvtx, **nvtx))
        if accelerator is not None:
            stack.enter_context(replaced(accelerator, **asked, device_count=_one(count)))
        for cls in (torch.amp.autocast, torch.amp.GradScaler):
            stack.enter_context(replaced(cls, __init__=_device_first(cls.__init__)))
        stack.enter_context(
            replaced(
                torch.Tensor,
                type=_type_of,
                pin_memory=lambda tensor, *args: tensor,
                is_pinned=lambda tensor, *args: False,
            )
        )
        stack.enter_context(replaced(torch, Generator=_Generator, set_default_device=_nothing))
        stack.enter_context(replaced(torch._C, _get_accelerator=lambda *args: torch.device("cpu")))
        yield


_even_all_to_all = dist.all_to_all_single


def _all_to_all_single(
    output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op=False
):
    """Fills uneven blocks, which the fake group leaves as they are, with this rank's own rows."""
    sizes = {"in_splits": input_split_sizes, "out_splits": output_split_sizes}
    alone = dist.get_world_size(group) == 1
    if alone or all(collectives.even(numbers) for numbers in sizes.values()):
        return _even_all_to_all(output, input, group=group, async_op=async_op)
    recorder = recording.active()
    with recording.unrecorded(), torch.no_grad():
        before = recorder.resolve([input]) if recorder else []
        rows = torch.arange(len(output)) % max(len(input), 1)
        output.copy_(input[rows]) if len(input) else output.zero_()
    if recorder is not None:
        collectives.record_uneven(recorder, before, output, sizes, group)
    return _done(output) if async_op else None


def _done(output: torch.Tensor) -> dist.Work:
    """The handle of what is ready at once."""
    future: torch.futures.Future = torch.futures.Future()
    future.set_result([output])
    return versions.work_of(future)


@contextlib.contextmanager
def fake_ranks(rank: int, world: int):
    """A default process group of `world` ranks of which this process simulates one."""
    options = versions.fake_options()
    dist.init_process_group(
        "fake", rank=rank, world_size=world, store=FakeStore(), pg_options=options
    )
    try:
        with replaced(dist, all_to_all_single=_all_to_all_single), versions.uniform_ranks():
            yield
    finally:
        dist.destroy_process_group()
