"""Runs code written for one GPU per rank in one process on the CPU.

A fake process group stands for the other ranks: its collectives move no data. Calls into the CUDA
runtime become calls on CPU tensors or do nothing.
"""

import contextlib

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode
from torch.testing._internal.distributed.fake_pg import FakeStore


class _Idle:
    """A stream, an event or another object whose methods have nothing to do."""

    def __init__(self, *args, **kwargs):
        pass

    def __getattr__(self, name):
        return lambda *args, **kwargs: _Idle()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False


class _OnCpu(TorchFunctionMode):
    """Rewrites `device="cuda"` in calls that create tensors."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == "cuda":
            kwargs["device"] = "cpu"
        return func(*args, **kwargs)


def _type_name(tensor, dtype=None, **kwargs):
    """`Tensor.type()` names the device; code for GPUs asks for the CUDA name."""
    if dtype is not None:
        return tensor.to(dtype)
    with torch._C.DisableTorchFunction():
        name = torch._C.TensorBase.type(tensor)
    return name.replace("torch.", "torch.cuda.", 1)


_CUDA_CALLS = {
    "current_device": lambda: "cpu",
    "set_device": lambda *args: None,
    "synchronize": lambda *args, **kwargs: None,
    "current_stream": lambda *args, **kwargs: _Idle(),
    "default_stream": lambda *args, **kwargs: _Idle(),
    "stream": lambda stream: contextlib.nullcontext(),
    "Stream": _Idle,
    "Event": _Idle,
    "get_rng_state": lambda *args, **kwargs: torch.get_rng_state(),
    "set_rng_state": lambda state, *args, **kwargs: torch.set_rng_state(state),
    "manual_seed": torch.manual_seed,
}


@contextlib.contextmanager
def replaced(owner, **attributes):
    """Sets attributes of a module or class for the time of the context."""
    missing = object()
    before = {name: vars(owner).get(name, missing) for name in attributes}
    for name, value in attributes.items():
        setattr(owner, name, value)
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
    with replaced(torch.cuda, **_CUDA_CALLS), replaced(torch.Tensor, **methods), _OnCpu():
        yield


_even_all_to_all = dist.all_to_all_single


def _all_to_all_single(
    output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op=False
):
    """Fills uneven blocks, which the fake group leaves as they are, with this rank's own rows."""
    if output_split_sizes is None:
        return _even_all_to_all(output, input, group=group, async_op=async_op)
    if async_op:
        raise NotImplementedError("an asynchronous all_to_all of uneven blocks")
    with torch.no_grad():
        rows = torch.arange(len(output)) % max(len(input), 1)
        return output.copy_(input[rows]) if len(input) else output.zero_()


@contextlib.contextmanager
def fake_ranks(rank: int, world: int):
    """A default process group of `world` ranks of which this process plays one."""
    options = torch._C._distributed_c10d.FakeProcessGroup.Options()
    options.simulate_uniform_ranks = True
    dist.init_process_group(
        "fake", rank=rank, world_size=world, store=FakeStore(), pg_options=options
    )
    try:
        with replaced(dist, all_to_all_single=_all_to_all_single):
            yield
    finally:
        dist.destroy_process_group()
