"""The job that a script believes to be part of: its launcher, its process groups, its GPUs.

Process groups are of the kind that moves no data, whatever the script asks for; where all ranks
run, of the kind that moves it between processes of one host.
"""

import contextlib
import dataclasses
import functools
import os
import sys

import torch

# an optimizer imports it; it wants to see the functions of torch.cuda as they are
import torch._dynamo
import torch.distributed as dist
import torch.distributed.fsdp
from torch.distributed import device_mesh, distributed_c10d
from torch.testing._internal.distributed.fake_pg import FakeStore

from .. import locations, versions
from .. import recorder as recording
from ..communication import collectives, messages
from ..frameworks import context_parallel, cpu, ddp, embedding_bags, flex_attention, gathers
from ..frameworks.cpu import replaced
from ..ranks import groupsizes
from . import calls, environment


@dataclasses.dataclass(frozen=True)
class Job:
    """How many processes run on how many hosts, and which of them this one is."""

    per_node: int
    nodes: int
    rank: int = 0
    meeting: str | None = None  # the file by which the ranks find each other, where all run

    @property
    def world(self) -> int:
        return self.per_node * self.nodes

    def environment(self) -> dict[str, str]:
        """What torchrun sets."""
        node, local = divmod(self.rank, self.per_node)
        numbers = {
            "RANK": self.rank,
            "WORLD_SIZE": self.world,
            "LOCAL_RANK": local,
            "LOCAL_WORLD_SIZE": self.per_node,
            "GROUP_RANK": node,
            "GROUP_WORLD_SIZE": self.nodes,
            "ROLE_RANK": self.rank,
            "ROLE_WORLD_SIZE": self.world,
            "MASTER_PORT": 29500,
            "TORCHELASTIC_RESTART_COUNT": 0,
            "TORCHELASTIC_MAX_RESTARTS": 0,
        }
        words = {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RUN_ID": "none", "ROLE_NAME": "default"}
        return words | {name: str(number) for name, number in numbers.items()}


@dataclasses.dataclass
class Seen:
    """What the script has made."""

    meshes: list = dataclasses.field(default_factory=list)
    replicas: list = dataclasses.field(default_factory=list)  # models under DistributedDataParallel
    backend: str = "nccl"  # what the script has asked for
    unanswered: bool = False  # whether it has asked another rank for an object, and got none
    own_numbers: bool = False  # whether it got numbers of its own in the place of another rank's


def everywhere(stack: contextlib.ExitStack, original, replacement) -> None:
    """Replaces a function in all modules of torch.distributed that have imported it."""
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.distributed") and module is not None:
            found = [key for key, value in vars(module).items() if value is original]
            stack.enter_context(replaced(module, **dict.fromkeys(found, replacement)))


def _groups(stack: contextlib.ExitStack, job: Job, seen: Seen) -> None:
    """Process groups of any backend become groups of the CPU."""
    init, new, backend_of = dist.init_process_group, dist.new_group, dist.get_backend

    @functools.wraps(init)
    def init_process_group(backend=None, *args, **kwargs):
        seen.backend = str(backend or "nccl").split(":")[-1]
        place = {"rank": job.rank, "world_size": job.world}
        if job.meeting is not None:
            init("gloo", init_method=f"file://{job.meeting}", **place)
        else:
            init("fake", store=FakeStore(), pg_options=versions.fake_options(), **place)

    @functools.wraps(new)
    def new_group(ranks=None, timeout=None, backend=None, pg_options=None, *args, **kwargs):
        kwargs.pop("device_id", None)
        kwargs["use_local_synchronization"] = False
        return new(ranks, None, None, None if job.meeting else versions.fake_options(), **kwargs)

    def get_backend(group=None):
        backend_of(group)  # refuses as torch does
        return seen.backend

    everywhere(stack, init, init_process_group)
    everywhere(stack, new, new_group)
    stack.enter_context(replaced(dist, get_backend=get_backend, is_nccl_available=lambda: True))
    _objects(stack, job.meeting is None, seen)
    if job.meeting is None:
        stack.enter_context(versions.uniform_ranks())
        _receiving(stack, job)
        _exchanges(stack, seen)
    else:
        stack.enter_context(versions.sharded_sums())
        stack.enter_context(versions.exchanged_lists())
        _batches(stack, seen)
        stack.enter_context(replaced(dist.Work, wait=_waiting(dist.Work.wait)))
        for name in ("all_reduce", "reduce", *_SCATTERING):
            if (collective := getattr(dist, name, None)) is not None:
                stack.enter_context(replaced(dist, **{name: _averaging(collective)}))


_OF_OBJECTS = ["all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list"]
_OF_OBJECTS += ["send_object_list", "recv_object_list"]


def _objects(stack: contextlib.ExitStack, alone: bool, seen: Seen) -> None:
    """Objects travel as bytes, which mean nothing as tensors."""

    def hidden(exchange, received):
        @functools.wraps(exchange)
        def wrapper(*args, **kwargs):
            with recording.unrecorded():
                # What one rank alone would receive is not there: its own stays.
                if alone and received(args, kwargs):
                    seen.unanswered = True
                    return None
                return exchange(*args, **kwargs)

        return wrapper

    def from_other(args, kwargs) -> bool:
        source = kwargs.get("src", args[1] if len(args) > 1 else 0)
        return (source or 0) != dist.get_rank()

    def scattered(args, kwargs) -> bool:
        outputs, inputs = args[0], kwargs.get("scatter_object_input_list", (*args, None)[1])
        outputs[0] = inputs[dist.get_rank()] if inputs else outputs[0]
        return True

    receives = {"broadcast_object_list": from_other, "scatter_object_list": scattered}
    receives |= dict.fromkeys(["send_object_list", "recv_object_list"], lambda *call: True)
    for name in _OF_OBJECTS:
        exchange = getattr(dist, name, None)
        if exchange is not None:
            wrapped = hidden(exchange, receives.get(name, lambda *call: False))
            everywhere(stack, exchange, wrapped)


def _exchanges(stack: contextlib.ExitStack, seen: Seen) -> None:
    """What a rank asks for by its numbers, such as rows of a table, another one would know."""
    exchange = cpu._all_to_all_single

    @functools.wraps(exchange)
    def all_to_all_single(output, input, *args, **kwargs):
        seen.own_numbers |= not (input.is_floating_point() or input.is_complex())
        return exchange(output, input, *args, **kwargs)

    stack.enter_context(replaced(dist, all_to_all_single=all_to_all_single))


_SCATTERING = ("reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_single")


def _receiving(stack: contextlib.ExitStack, job: Job) -> None:
    """What no other rank sends is some numbers."""

    def filling(receive):
        @functools.wraps(receive)
        def wrapper(tensor, src=None, group=None, tag=0, group_src=None):
            with recording.unrecorded():
                messages.fill(tensor)
            if src is None and group_src is None:  # the fake group cannot say from which rank
                work = (group or dist.group.WORLD).recv_anysource([tensor], tag)
                return work if receive.__name__ == "irecv" else (dist.get_rank() + 1) % job.world
            words = {} if group_src is None else {"group_src": group_src}
            return receive(tensor, src, group, tag, **words)

        return wrapper

    for name in ("recv", "irecv"):
        everywhere(stack, getattr(dist, name), filling(getattr(dist, name)))


class _Together:
    """One handle of several messages, which lives as long as any of them."""

    def __init__(self, works: list):
        self._works = works

    def wait(self, *args) -> bool:
        return all([work.wait(*args) for work in self._works])

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)


def _batches(stack: contextlib.ExitStack, seen: Seen) -> None:
    """NCCL gives one handle for a batch of messages: pipelines of torch 2.6 wait for no other."""
    send = dist.batch_isend_irecv

    @functools.wraps(send)
    def batch_isend_irecv(p2p_op_list):
        works = send(p2p_op_list)
        return [_Together(works)] if seen.backend == "nccl" and works else works

    everywhere(stack, send, batch_isend_irecv)


def _waiting(wait):
    """The processes of a host copy what was scattered from a buffer of their own when it is waited
    for: no operation of the program."""

    @functools.wraps(wait)
    def wrapper(work, *args, **kwargs):
        with recording.unrecorded():
            return wait(work, *args, **kwargs)

    return wrapper


def _averaging(collective):
    """Averages by a sum: the processes of a host cannot average."""

    def is_average(given) -> bool:
        reductions = (dist.ReduceOp, dist.ReduceOp.RedOpType)
        return isinstance(given, reductions) and given == dist.ReduceOp.AVG

    @functools.wraps(collective)
    def wrapper(*args, **kwargs):
        if not any(is_average(one) for one in [*args, *kwargs.values()]):
            return collective(*args, **kwargs)
        total = dist.ReduceOp.SUM
        target = args[0] if args else kwargs.get("tensor", kwargs.get("output"))
        args = tuple(total if is_average(one) else one for one in args)
        kwargs |= {"op": total} if "op" in kwargs else {}
        with collectives.averaging():
            work = collective(*args, **kwargs)
        if work is not None:
            work.wait()
        with recording.unrecorded():
            target.div_(dist.get_world_size(kwargs.get("group")))
        return work

    return wrapper


def _meshes(stack: contextlib.ExitStack, seen: Seen) -> None:
    cls = device_mesh.DeviceMesh
    init = cls.__init__

    @functools.wraps(init)
    def __init__(made, device_type="cpu", *args, **kwargs):
        init(made, str(cpu._off_cuda(device_type)), *args, **kwargs)
        seen.meshes.append(made)

    stack.enter_context(replaced(cls, __init__=__init__))


def _wrappers(stack: contextlib.ExitStack, seen: Seen) -> None:
    """Modules and functions that ask for GPUs, or for other processes."""
    parallel = torch.nn.parallel.DistributedDataParallel
    init = parallel.__init__

    @functools.wraps(init)
    def __init__(model, module, device_ids=None, output_device=None, *args, **kwargs):
        with recording.unrecorded():
            init(model, module, None, None, *args, **kwargs)
        ddp.built(model)
        seen.replicas.append(model)

    sharded = torch.distributed.fsdp.FullyShardedDataParallel
    shard = sharded.__init__

    @functools.wraps(shard)
    def sharded_on_cpu(model, module, *args, **kwargs):
        kwargs["device_id"] = torch.device("cpu")
        with recording.unrecorded():
            shard(model, module, *args, **kwargs)

    loader = torch.utils.data.DataLoader
    load = loader.__init__

    @functools.wraps(load)
    def in_this_process(self, *args, **kwargs):
        for name in ("multiprocessing_context", "prefetch_factor"):
            kwargs.pop(name, None)
        kwargs |= {"num_workers": 0, "pin_memory": False, "persistent_workers": False, "timeout": 0}
        # num_workers is the sixth argument, after dataset, batch_size, shuffle and both samplers.
        load(self, *args[:5], **kwargs)

    def compiled(model=None, **options):
        return model if model is not None else lambda function: function

    stack.enter_context(replaced(parallel, __init__=__init__))
    stack.enter_context(replaced(sharded, __init__=sharded_on_cpu))
    stack.enter_context(replaced(loader, __init__=in_this_process))
    stack.enter_context(replaced(torch, compile=compiled))
    stack.enter_context(replaced(torch.nn.Module, compile=lambda *args, **kwargs: None))


@contextlib.contextmanager
def simulated(job: Job, log: calls.Log | None = None):
    """Simulates the environment of a distributed script; yields what the script sets up.

    `log`: where to note what it calls together with other ranks.
    """
    seen = Seen()
    os.environ.update(job.environment())
    with contextlib.ExitStack() as stack:
        stack.enter_context(cpu.a_gpu_per_rank(job.per_node, job.rank % job.per_node))
        _groups(stack, job, seen)
        _meshes(stack, seen)
        _wrappers(stack, seen)
        stack.enter_context(context_parallel.on_cpu())
        stack.enter_context(flex_attention.on_cpu())
        stack.enter_context(gathers.on_cpu())
        stack.enter_context(embedding_bags.on_cpu())
        stack.enter_context(groupsizes.followed_in_script(locations.is_own_frame))
        stack.enter_context(environment.followed(job.world, locations.is_own_code))
        if log is not None:
            stack.enter_context(calls.watched(log, job.world, everywhere))
        yield seen


def groups_of_this_rank() -> list[tuple[str, list[int]]]:
    """Names and ranks of the process groups that this rank is in."""
    if not dist.is_initialized():
        return []
    found = []
    for group, ranks in distributed_c10d._world.pg_group_ranks.items():
        if dist.get_rank() in ranks and len(ranks) > 1:
            found.append((group.group_desc, sorted(ranks, key=ranks.get)))
    return found
