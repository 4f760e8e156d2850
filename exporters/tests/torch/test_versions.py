"""What is the same under all versions of torch from 2.6 on: process groups that move no data."""

import pytest

import spmd_trace.torch  # noqa: F401  before torch: it says what to do without CUDA libraries
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

from spmd_trace.torch import Axis, Mesh, Recorder
from spmd_trace.torch.frameworks import cpu

_RANK, _RANKS = 1, 4


@pytest.fixture(autouse=True)
def ranks():
    with cpu.fake_ranks(_RANK, _RANKS):
        yield


def _block(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank gets of a tensor that is cut."""
    return tensor.chunk(_RANKS)[_RANK]


_REDUCED = {"SUM": 2.0 * _RANKS, "AVG": 2.0, "MAX": 2.0, "PRODUCT": 2.0**_RANKS}


@pytest.mark.parametrize("op", _REDUCED)
def test_ranks_have_what_this_one_has(op):
    one, whole = torch.full((2,), 2.0), torch.full((2 * _RANKS,), 2.0)
    dist.all_reduce(one, op=getattr(dist.ReduceOp, op))
    piece = torch.zeros(2)
    dist.reduce_scatter_tensor(piece, whole, op=getattr(dist.ReduceOp, op))
    assert one.tolist() == piece.tolist() == [_REDUCED[op]] * 2


def test_a_root_has_what_the_others_send():
    for root in (_RANK, 0):
        total, kept = torch.full((2,), 2.0), torch.full((2,), 3.0)
        dist.reduce(total, root)
        dist.broadcast(kept, root)
        assert total.tolist() == [8.0 if root == _RANK else 2.0] * 2 and kept.tolist() == [3.0] * 2
    parts = [torch.zeros(1) for _ in range(_RANKS)]
    dist.gather(torch.ones(1), parts, dst=_RANK)
    piece = torch.zeros(1)
    dist.scatter(piece, [torch.full((1,), float(i)) for i in range(_RANKS)], src=_RANK)
    assert torch.cat(parts).tolist() == [1.0] * _RANKS and piece.item() == _RANK


def test_exchanges_and_gathers():
    whole, got = torch.arange(8.0), torch.zeros(8)
    dist.all_to_all_single(got, whole)
    assert got.tolist() == _block(whole).tolist() * _RANKS
    parts = [torch.zeros(2) for _ in range(_RANKS)]
    dist.all_to_all(parts, list(whole.chunk(_RANKS)))
    assert torch.cat(parts).tolist() == got.tolist()
    dist.all_gather(parts, torch.tensor([5.0, 6.0]))
    dist.all_gather_into_tensor(got, torch.tensor([5.0, 6.0]))
    assert torch.cat(parts).tolist() == got.tolist() == [5.0, 6.0] * _RANKS
    dist.reduce_scatter(parts[0], list(whole.chunk(_RANKS)))
    assert parts[0].tolist() == (_RANKS * _block(whole)).tolist()


def test_functional_collectives():
    group, whole = dist.group.WORLD, torch.arange(8.0)
    pieces = functional.reduce_scatter_tensor_coalesced([whole], "sum", [0], group)
    pieces += [functional.reduce_scatter_tensor(whole, "sum", 0, group)]
    assert [one.tolist() for one in pieces] == [(_RANKS * _block(whole)).tolist()] * 2
    assert functional.all_reduce(whole, "sum", group).tolist() == (_RANKS * whole).tolist()
    assert functional.all_gather_tensor(_block(whole), 0, group).tolist() == [2.0, 3.0] * _RANKS


def test_code_below_python_reads_what_a_collective_gives():
    """So does the reducer of DistributedDataParallel, and hooks that a program gives to it."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    asked = []

    def hook(state, bucket):
        asked.append(bucket.buffer())
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(lambda future: future.value()[0] / _RANKS)

    for hooked in (False, True):
        if hooked:
            model.register_comm_hook(None, hook)
        model.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        assert model.module.weight.grad.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert asked


@pytest.mark.parametrize("op", _REDUCED)
def test_the_reduction_is_recorded(op):
    recorder = Recorder(Mesh("main", [Axis("dp", _RANKS, 1, "data")]))
    with recorder.recording():
        x = torch.ones(4)
        dist.all_reduce(x, op=getattr(dist.ReduceOp, op))
        dist.reduce_scatter_tensor(torch.zeros(1), x, op=getattr(dist.ReduceOp, op))
    words = [one.attrs["op"] for one in recorder.program.ops if "op" in one.attrs]
    assert words == [op.lower().replace("product", "prod")] * 2
