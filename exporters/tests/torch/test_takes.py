"""Which blocks of a whole tensor a rank has taken for a parameter."""

import judged
import pytest
import torch
from torch.overrides import TorchFunctionMode

from spmd_trace.torch.script.takes import Takes
from traces import COPY, recorded

needs_checker = pytest.mark.skipif(judged.checker() is None, reason="SPMDLINT names no checker")
_SIZE, _HEADS = 2, 4


class _Noted(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.takes = Takes()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.takes.note(func, args, kwargs or {}, result)
        return result


def _strided(whole, rank):
    return whole.view(3, _SIZE, _HEADS, 8)[:, rank].reshape(-1, 8).clone()


def _listed(whole, rank):
    out = torch.empty(12, 8)
    torch.cat(torch.split(whole, 4)[rank::_SIZE], dim=0, out=out)
    return out


def _copied(whole, rank):
    out = torch.empty(12, 8)
    for place, one in enumerate(whole.chunk(3)):
        out[4 * place : 4 * place + 4].copy_(one.chunk(_SIZE)[rank])
    return out


def _set(whole, rank):
    out = torch.empty(12, 8)
    for place, one in enumerate(whole.chunk(3)):
        out[4 * place : 4 * place + 4] = one[4 * rank : 4 * rank + 4]
    return out


def _of_several(whole, rank):
    query, key, value = (torch.randn(8, 8) for _ in range(3))
    return torch.cat([one.chunk(_SIZE)[rank] for one in (query, key, value)])


def _of_one_half(whole, rank):
    return whole.chunk(_SIZE)[rank].clone().to(torch.bfloat16)


def _scaled(whole, rank):
    return (whole.chunk(_SIZE, dim=1)[rank] * 0.5).contiguous()


def _turned(whole, rank):
    return whole.t().chunk(_SIZE)[rank].contiguous()


@pytest.mark.parametrize(
    "take, dim, blocks",
    [
        (_strided, 0, 3),
        (_listed, 0, 3),
        (_copied, 0, 3),
        (_set, 0, 3),
        (_of_several, 0, 3),
        (_of_one_half, 0, 1),
        (_scaled, 1, 1),
        (_turned, 0, 1),
    ],
)
def test_blocks_are_followed_to_the_parameter(take, dim, blocks):
    wholes = set()
    for rank in range(_SIZE):
        with _Noted() as noted:
            torch.manual_seed(0)
            parameter = torch.nn.Parameter(take(torch.randn(24, 8), rank))
        taken = noted.takes.taken(parameter)
        assert (taken.dim, taken.blocks, taken.pieces, taken.place) == (dim, blocks, _SIZE, rank)
        wholes.add(taken.whole)
    assert len(wholes) == 1


def _changed(whole, rank):
    part = whole.chunk(_SIZE)[rank].clone()
    part.add_(1.0)
    return part


def _mixed(whole, rank):
    query, key, value = whole.chunk(3)
    return torch.cat([query.chunk(2)[rank], key.chunk(2)[1 - rank], value.chunk(2)[rank]])


def _overwritten(whole, rank):
    part = whole.chunk(_SIZE)[rank].clone()
    part[3:5] = torch.zeros(2, 8)
    return part


def _all(whole, rank):
    return whole.clone()


@pytest.mark.parametrize("take", [_changed, _mixed, _overwritten, _all])
def test_what_is_no_blocks_of_a_whole_is_not_taken(take):
    with _Noted() as noted:
        parameter = torch.nn.Parameter(take(torch.randn(24, 8), 1))
    assert noted.takes.taken(parameter) is None


_SCRIPT = (
    """
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
"""
    + COPY
    + """
class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        dist.all_reduce(x)
        return x
    @staticmethod
    def backward(ctx, grad):
        return grad

class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.width = heads // size, dim // heads
        whole, seen = torch.randn(3 * dim, dim) * 0.1, torch.randn(dim, dim) * 0.1
        self.qkv = nn.Parameter(TAKE)
        self.bias = nn.Parameter(torch.zeros(3 * dim // size))
        self.out = nn.Parameter(seen.chunk(size, dim=1)[rank].clone())

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = F.linear(Copy.apply(x), self.qkv, self.bias).chunk(3, dim=-1)
        q, k, v = (one.reshape(b, t, self.heads, self.width).transpose(1, 2) for one in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v)
        y = y.transpose(1, 2).reshape(b, t, self.heads * self.width)
        return x + Sum.apply(F.linear(y, self.out))

torch.manual_seed(0)
model = nn.Sequential(Attention(16, 4), nn.LayerNorm(16))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(step))).pow(3).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
)
_TAKES = {
    "heads": "whole.view(3, size, -1, dim)[:, rank].reshape(-1, dim).clone()",
    "rows": "whole.chunk(size)[rank].clone()",
    "crossed": "torch.cat([whole.chunk(6)[(rank + i // 2) % size + 2 * i] for i in (0, 1, 2)])",
    "others": "(whole + rank).view(3, size, -1, dim)[:, rank].reshape(-1, dim).clone()",
}


@needs_checker
@pytest.mark.parametrize("take", _TAKES)
def test_a_fused_weight_is_proved_where_ranks_took_its_blocks(tmp_path, take):
    (tmp_path / "script.py").write_text(_SCRIPT.replace("TAKE", _TAKES[take]))
    trace, _ = recorded(tmp_path, "--world", 2, "script.py")
    (weight,) = [one for one in trace["params"] if one["name"] == "0.qkv"]
    blocks = {"heads": 3, "rows": 1}.get(take)
    assert weight.get("taken_blocks") == blocks
    path = tmp_path / "step.spmd.json"
    assert judged.findings(path) == {}
    assert judged.proved(path) == {"ranks": 5 if take == "heads" else 0}
