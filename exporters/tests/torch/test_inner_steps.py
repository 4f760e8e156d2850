"""Tasks that are dealt out to ranks, each with inner steps of its own that the outer gradient goes
through."""

import pytest

from traces import linted

_SCRIPT = """
import torch, torch.distributed as dist, torch.nn.functional as F
from torch.func import functional_call
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(4):
    optimizer.zero_grad()
    for index in range(rank, 10, world):
        draws = torch.Generator().manual_seed(step * 100 + index)
        x, y = torch.randn(8, 3, generator=draws), torch.randn(8, 1, generator=draws)
        named = dict(model.named_parameters())
        inner = F.mse_loss(functional_call(model, named, (x[:4],)), y[:4])
        gradients = torch.autograd.grad(inner, tuple(named.values()), create_graph=True)
        fast = {key: p - 0.02 * g for (key, p), g in zip(named.items(), gradients)}
        F.mse_loss(functional_call(model, fast, (x[4:],)), y[4:]).backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad.div_(10)
    optimizer.step()
"""


def test_nothing_is_found_in_steps_of_own_tasks(tmp_path):
    done = linted(tmp_path, _SCRIPT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"warnings": 0' in done.stdout


_MISTAKES = {"p.grad.div_(10)": "accumulated-means", "dist.all_reduce(p.grad)": "copies-drift"}


@pytest.mark.parametrize("line", _MISTAKES)
def test_what_is_left_out_behind_them_is_found(line, tmp_path):
    done = linted(tmp_path, _SCRIPT.replace(f"        {line}\n", ""))
    assert _MISTAKES[line] in done.stdout, done.stdout + done.stderr
