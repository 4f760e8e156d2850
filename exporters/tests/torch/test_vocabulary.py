"""Losses over a vocabulary that is cut along the ranks, written by hand."""

import pytest
from traces import COPY, linted

_SCRIPT = (
    """
import torch, torch.distributed as dist, torch.nn as nn
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
WORDS, WIDTH = 32, 8
each = WORDS // world
low, high = rank * each, (rank + 1) * each
"""
    + COPY
    + """
class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores, target):
        top = TOP
        dist.all_reduce(top, op=dist.ReduceOp.MAX)
        z = scores - top.unsqueeze(-1)
        outside = (target < low) | (target >= high)
        own = (target - low).masked_fill(outside, 0)
        picked = z.gather(-1, own.unsqueeze(-1)).squeeze(-1).masked_fill(outside, 0.0)
        dist.all_reduce(picked)
        e = z.exp()
        total = e.sum(-1)
        dist.all_reduce(total)
        ctx.save_for_backward(e / total.unsqueeze(-1), outside, own)
        return total.log() - picked

    @staticmethod
    def backward(ctx, g):
        share, outside, own = ctx.saved_tensors
        share = share.clone()
        hit = (~outside).to(share.dtype)
        TAKE
        return share * g.unsqueeze(-1), None

torch.manual_seed(0)
body = nn.Linear(6, WIDTH)
head = nn.Parameter(torch.randn(WORDS, WIDTH).chunk(world)[rank].clone())
optimizer = torch.optim.AdamW([*body.parameters(), head], 1e-2)
for _ in range(3):
    x, y = torch.randn(5, 6), torch.randint(WORDS, (5,))
    loss = Loss.apply(Copy.apply(body(x).tanh()) @ head.T, y).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
)
_TOP = {"max": "scores.max(dim=-1).values", "amax": "scores.amax(-1)"}
_TAKE = {
    "negated": "share.scatter_add_(-1, own.unsqueeze(-1), -hit.unsqueeze(-1))",
    "taken away": "share[torch.arange(len(own)), own] -= hit",
}


@pytest.mark.parametrize("top,take", [("max", "negated"), ("amax", "taken away")])
def test_gradients_of_a_cut_vocabulary_are_proved(tmp_path, top, take):
    script = _SCRIPT.replace("TOP", _TOP[top]).replace("TAKE", _TAKE[take])
    done = linted(tmp_path, script, "--min-proof=100")
    assert done.returncode == 0, done.stdout + done.stderr
