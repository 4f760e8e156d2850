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


_OWNED = """
import torch, torch.distributed as dist, torch.nn.functional as F
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Tanh(), torch.nn.Linear(9, 5))
parameters = list(model.parameters())
size = sum(p.numel() for p in parameters)
size += -size % world
weights, gradients, at = torch.zeros(size), torch.zeros(size), 0
for p in parameters:
    weights[at : at + p.numel()].copy_(p.data.view(-1))
    p.data = weights[at : at + p.numel()].view_as(p)
    p.grad = gradients[at : at + p.numel()].view_as(p)
    at += p.numel()
share = size // world
own, own_gradient = weights[rank * share : (rank + 1) * share], torch.zeros(share)
for step in range(4):
    draws = torch.Generator().manual_seed(step)
    x, y = torch.randn(8, 6, generator=draws), torch.randint(0, 5, (8,), generator=draws)
    gradients.zero_()
    F.cross_entropy(model(x[rank::world]), y[rank::world]).backward()
    dist.reduce_scatter_tensor(own_gradient, gradients)
    own_gradient.div_(world)
    squares = own_gradient.square().sum()
    dist.all_reduce(squares)
    own_gradient.mul_((1.0 / (squares.sqrt() + 1e-6)).clamp(max=1.0))
    own.sub_(0.1 * own_gradient)
    dist.all_gather_into_tensor(weights, own.clone())
"""


def test_gradients_that_are_parts_of_a_buffer_that_is_cleared_are_proved(tmp_path):
    done = linted(tmp_path, _OWNED, "--min-proof=100")
    assert done.returncode == 0, done.stdout + done.stderr


_OWNED_WRONG = {
    "a norm of a rank's own share": ("    dist.all_reduce(squares)\n", ""),
    "a buffer that is not cleared": ("    gradients.zero_()\n", ""),
    "no average": ("    own_gradient.div_(world)\n", ""),
}


@pytest.mark.parametrize("mistake", _OWNED_WRONG)
def test_a_mistake_with_a_buffer_that_ranks_own_is_found(tmp_path, mistake):
    right, wrong = _OWNED_WRONG[mistake]
    assert right in _OWNED
    done = linted(tmp_path, _OWNED.replace(right, wrong), "--fail-on=warning")
    assert done.returncode == 1, done.stdout + done.stderr


_PICKED = """
import torch, torch.distributed as dist, torch.nn.functional as F
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Linear(6, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rest = [torch.zeros(p.numel()) for p in model.parameters()]
draws = torch.Generator().manual_seed(SEED)
for step in range(4):
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(step)).chunk(world)[rank]
    optimizer.zero_grad()
    model(x).square().mean().backward()
    for p, kept in zip(model.parameters(), rest):
        whole = ADDED
        picked = torch.randperm(len(kept), generator=draws)[: len(kept) // 2]
        sent = whole[picked]
        whole[picked] = 0
        kept.copy_(whole)
        dist.all_reduce(sent)
        p.grad = torch.zeros(len(kept)).index_put((picked,), sent / world).view_as(p)
    optimizer.step()
"""


@pytest.mark.parametrize("added", ["kept.add_(p.grad.flatten())", "kept + p.grad.flatten()"])
@pytest.mark.parametrize("seed,code", [("1", 0), ("1 + rank", 1)])
def test_some_elements_of_gradients_are_summed(tmp_path, seed, code, added):
    done = linted(tmp_path, _PICKED.replace("SEED", seed).replace("ADDED", added))
    assert done.returncode == code, done.stdout + done.stderr
