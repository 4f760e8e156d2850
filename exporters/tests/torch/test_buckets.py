"""Gradients that hooks copy into views of a flat buffer, which is reduced while the backward goes
on and copied back before the step."""

import json

import pytest

from traces import linted

_SCRIPT = """
import torch, torch.distributed as dist, torch.nn.functional as F
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
parameters = list(model.parameters())
flat = torch.zeros(sum(p.numel() for p in parameters) + GAP)
places, at = [], 0
for p in parameters:
    places.append(flat[at : at + p.numel()].view_as(p))
    at += p.numel() + GAP // len(parameters)
arrived, work = [], []

def hook(place, p):
    place.copy_(p.grad)
    arrived.append(p)
    if len(arrived) == len(parameters):
        work.append(dist.all_reduce(flat, async_op=True))

for place, p in zip(places, parameters):
    p.register_post_accumulate_grad_hook(lambda p, place=place: hook(place, p))

data, labels = torch.randn(64, 6), torch.randint(0, 5, (64,))
for step in range(4):
    x, y = data[step * 8 : step * 8 + 8], labels[step * 8 : step * 8 + 8]
    x, y = x[rank::world], y[rank::world]
    optimizer.zero_grad()
    arrived.clear()
    (F.cross_entropy(model(x), y, reduction="sum") / 8).backward()
    work.pop().wait()
    for place, p in zip(places, parameters):
        p.grad.copy_(place)
    optimizer.step()
"""


def test_all_gradients_of_a_bucket_are_proved(tmp_path):
    done = linted(tmp_path, _SCRIPT.replace("GAP", "0"), "--min-proof=100")
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_lies_between_gradients_makes_no_finding(tmp_path):
    done = linted(tmp_path, _SCRIPT.replace("GAP", "8"))
    assert done.returncode == 0, done.stdout + done.stderr


_MISTAKES = {
    "reduced before the last has arrived": (
        "len(arrived) == len(parameters)",
        "len(arrived) == len(parameters) - 1",
    ),
    "one is not copied back": (
        "zip(places, parameters):\n        p.grad",
        "zip(places[1:], parameters[1:]):\n        p.grad",
    ),
    "one is not copied into it": (
        "    place.copy_(p.grad)",
        "    place.copy_(p.grad) if p.dim() > 1 or len(p) > 5 else 0",
    ),
    "averaged twice": ("p.grad.copy_(place)", "p.grad.copy_(place / world)"),
}


@pytest.mark.parametrize("mistake", _MISTAKES)
def test_a_mistake_in_a_bucket_is_found(tmp_path, mistake):
    right, wrong = _MISTAKES[mistake]
    assert right in _SCRIPT
    done = linted(tmp_path, _SCRIPT.replace(right, wrong).replace("GAP", "0"))
    assert done.returncode == 1, done.stdout + done.stderr


_SHARES = """
import torch, torch.distributed as dist, torch.nn.functional as F
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Linear(6, 8)
parameters, at = list(model.parameters()), 0
size = sum(p.numel() for p in parameters)
weights, gradients = torch.empty(size), torch.zeros(size)
for p in parameters:
    p.at, at = at, at + p.numel()
    weights[p.at : at] = p.detach().flatten()
    p.data = weights[p.at : at].view_as(p)
    p.sums = gradients[p.at : at].view_as(p)
share = size // world
low, high = rank * share, rank * share + share
mine = gradients[low:high]
for step in range(3):
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(world * step + rank))
    loss = model(x).pow(2).mean()
    for p in parameters:
        p.grad = None
        p.sums.zero_()
    loss.backward()
    for p in parameters:
        p.sums.add_(p.grad)
    dist.reduce_scatter_tensor(mine, gradients)
    with torch.no_grad():
        for p in parameters:
            first, last = max(low - p.at, 0), min(high - p.at, p.numel())
            if first < last:
                part = p.sums.view(-1)[first:last].float() / world
                p.view(-1)[first:last].add_(part, alpha=-0.1)
    dist.all_gather_into_tensor(weights, weights[low:high].clone())
"""


def test_a_share_that_ends_inside_of_a_gradient_is_recorded(tmp_path):
    done = linted(tmp_path, _SHARES)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout)["summary"]
    assert summary["ops"] > 20
