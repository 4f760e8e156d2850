"""`--confirm`: a script on all its ranks against the same script on one."""

import json

import pytest

import spmd_trace.torch  # noqa: F401  before torch
import torch
from spmd_trace.torch.script import onedevice
from traces import linted

_WHOLE = torch.arange(24.0).view(6, 4).sin()


@pytest.mark.parametrize(
    "part,places",
    [
        (_WHOLE, [[0, 1, 2, 3, 4, 5], [0, 1, 2, 3]]),
        (_WHOLE[3:], [[3, 4, 5], [0, 1, 2, 3]]),
        (_WHOLE[1::2, 2:], [[1, 3, 5], [2, 3]]),
        (_WHOLE[:3] + 1, None),
        (_WHOLE[0], None),
        (torch.zeros(3, 4), None),
    ],
)
def test_blocks_are_found_by_their_numbers(part, places):
    found = onedevice.locate(part, _WHOLE)
    assert (found and [one.tolist() for one in found]) == places


@pytest.mark.parametrize(
    "parts,same",
    [
        ([[_WHOLE], [_WHOLE]], True),
        ([[_WHOLE[:3]], [_WHOLE[3:]]], True),
        ([[_WHOLE[::2]], [_WHOLE[1::2]]], True),
        ([[_WHOLE[:3]], [_WHOLE[:3]]], False),
        ([[_WHOLE[:3]], [_WHOLE[3:] + 1]], False),
    ],
)
def test_data_of_ranks_are_rows_of_all(parts, same):
    assert onedevice._is_same([_WHOLE], parts) == same


def test_numbers_that_count_up_need_not_be_among_the_data():
    numbers = torch.arange(16)
    blocks = [[torch.cat([numbers[at : at + 4], numbers[12 - at : 16 - at]])] for at in (0, 4)]
    assert onedevice._is_same([_WHOLE, numbers], [[_WHOLE], []])
    assert onedevice._is_same([_WHOLE, numbers], [[_WHOLE, *of] for of in blocks])
    assert not onedevice._is_same([_WHOLE, numbers], [[_WHOLE, numbers[:8] + 12], []])


def test_gains_are_where_the_weights_of_their_layer_are():
    ones, weight = torch.ones(4), _WHOLE
    whole = {f"layers.{n}.{name}": one for n in range(4)
             for name, one in (("gain", ones), ("up.weight", weight + n))}  # fmt: skip
    stage = {"layers.0.gain": ones, "layers.0.up.weight": weight + 2, "layers.1.gain": ones}
    found = onedevice._places(stage | {"layers.1.up.weight": weight + 3, "norm": ones}, whole)
    assert {name: other for name, (other, _) in found.items()} == {
        "layers.0.gain": "layers.2.gain",
        "layers.0.up.weight": "layers.2.up.weight",
        "layers.1.gain": "layers.3.gain",
        "layers.1.up.weight": "layers.3.up.weight",
        "norm": "layers.0.gain",  # of one number: any of these
    }


@pytest.mark.parametrize(
    "turned,found", [(slice(8, None), False), (slice(0, 4), True), (slice(0, 8), True)]
)
def test_an_optimizer_may_make_much_of_rounding_errors(turned, found):
    """As Adam does in its first steps: all elements move as far."""
    gradient = torch.cat([torch.linspace(1, 2, 8), torch.full((16,), 1e-4)]).double()
    before, update = torch.zeros(24), torch.full((24,), 0.1)
    one = {"before": {"w": before}, "gradients": [{"w": [(0, gradient)]}]}
    rank = one | {
        "states": [{"w": before}, {"w": update.index_fill(0, torch.arange(24)[turned], -0.1)}]
    }
    places = [{"w": ("w", [torch.arange(24)])}]
    differ = onedevice._updates(
        [rank], one | {"states": [{"w": before}, {"w": update}]}, places, ["w"], 5e-2
    )
    assert bool(differ) == found


_SCRIPT = """
import argparse, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--parts", type=int, default=2)
parts = parser.parse_args().parts
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
part, replica = rank % parts, rank // parts
for n in range(world // parts):
    group = dist.new_group(range(n * parts, (n + 1) * parts))
    tp = group if n == replica else tp if n else None
for n in range(parts):
    group = dist.new_group(range(n, world, parts))
    dp = group if n == part else dp if n else None

class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x, group=tp)
        return x

    @staticmethod
    def backward(ctx, g):
        return g

torch.manual_seed(0)
up, down = torch.randn(16, 6) / 4, torch.randn(5, 16) / 4
up, down = (nn.Parameter(w.chunk(parts, d)[part].clone()) for w, d in ((up, 0), (down, 1)))
bias = nn.Parameter(torch.zeros(5))
optimizer = torch.optim.AdamW([up, down, bias], lr=1e-2)
data = TensorDataset(torch.randn(64, 6), torch.randint(5, (64,)))
sampler = DistributedSampler(data, world // parts, replica, seed=3)
for x, y in DataLoader(data, batch_size=4, sampler=sampler):
    drop = torch.ones(())
    scores = Sum.apply(F.gelu(x @ up.T) @ down.T) + bias
    mask = torch.arange(5) < 5
    loss = F.cross_entropy(scores.masked_fill(~mask, -1e9) * drop, y)
    optimizer.zero_grad()
    loss.backward()
    for p in (up, down, bias):
        dist.all_reduce(p.grad, group=dp)
        p.grad /= world // parts
    optimizer.step()
"""


def _confirmed(tmp_path, script: str) -> tuple[list[dict], dict, str]:
    done = linted(tmp_path, script, "--confirm")
    assert done.returncode in (0, 1), done.stderr
    result = json.loads(done.stdout)
    return result["findings"], result["summary"], done.stderr


def test_what_one_rank_makes_as_well_is_confirmed(tmp_path):
    findings, _, said = _confirmed(tmp_path, _SCRIPT)
    assert not findings and "3 parameters were compared with one rank" in said
    assert "could be checked" not in said  # there was nothing left


_MISTAKES = {
    "classes of the rank alone": ("torch.arange(5) < 5", "torch.arange(5) < 5 - part"),
    "a bias on each rank": ("down.T) + bias", "down.T + bias)"),
    "gradients that are summed": ("p.grad /= world // parts", "pass"),
    "rows in another order": ("w.chunk(parts, d)[part]", "w.chunk(parts, d)[part - d]"),
}


@pytest.mark.parametrize("mistake", _MISTAKES)
def test_what_one_rank_makes_otherwise_is_found(tmp_path, mistake):
    right, wrong = _MISTAKES[mistake]
    assert right in _SCRIPT
    findings, _, said = _confirmed(tmp_path, _SCRIPT.replace(right, wrong))
    (found,) = [one for one in findings if one["name"] == "unlike-one-device"]
    assert "gradient of " in found["message"] and "were compared with one rank" in said
    if mistake == "gradients that are summed":
        assert ": 2 times what one device makes of the same data" in found["message"]


_OTHER = {
    "all ranks together have other data,": (
        "for x, y in DataLoader(data, batch_size=4, sampler=sampler):",
        "for n in range(4):\n    x, y = data[16 * n + 4 * replica : 16 * n + 4 * replica + 4]",
    ),
    "all ranks together have other data, or draw other random numbers": (
        "torch.ones(())",
        "torch.rand(len(x), 1)",
    ),
    "batch norm is over the rows": (
        "(scores.",
        "(F.batch_norm(scores, None, None, training=True).",
    ),
    "one rank has another model": ("manual_seed(0)", "manual_seed(rank)"),
}


@pytest.mark.parametrize("reason", _OTHER)
def test_what_need_not_agree_is_no_finding(tmp_path, reason):
    right, wrong = _OTHER[reason]
    assert right in _SCRIPT
    findings, _, said = _confirmed(tmp_path, _SCRIPT.replace(right, wrong))
    assert not [one for one in findings if one["name"] == "unlike-one-device"]
    assert f"not compared with one rank: {reason}" in said


_ACCUMULATES = """
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Sequential(nn.LazyLinear(16), nn.GELU(), nn.LazyLinear(4))
rows, labels = torch.randn(192, 6), torch.randint(4, (192,))
model(rows[:2])
model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(4):
    batch = torch.arange(48 * step, 48 * step + 48).chunk(world)[rank]
    for n, at in enumerate(batch.chunk(3)):
        loss = F.cross_entropy(model(rows[at]), labels[at]) / 3
        if n < 2:
            with model.no_sync():
                loss.backward()
        else:
            loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("mistake", [False, True])
def test_data_of_all_micro_batches_are_known(tmp_path, mistake):
    wrong = _ACCUMULATES.replace("/ 3\n", "/ 3 * rank\n")
    findings, _, said = _confirmed(tmp_path, wrong if mistake else _ACCUMULATES)
    assert [one["name"] for one in findings].count("unlike-one-device") == mistake
    assert "not compared" not in said
