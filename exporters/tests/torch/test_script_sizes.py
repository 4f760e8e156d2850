"""Sizes of process groups in a script: a product with one is `scale`."""

import operator

import numpy as np
import pytest
import torch
from traces import recorded

from spmd_trace.torch.ranks import groupsizes

_SCRIPT = """
import json, torch, torch.distributed as dist
mesh = dist.init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
dp, tp = mesh.get_group("dp"), mesh.get_group("tp")
world, replicas = dist.get_world_size(), mesh.size(0)
assert isinstance(world, int) and world == 8 and [0] * world
assert torch.zeros(world, 2).view(world, -1).shape[0] == 8
assert json.dumps([world, tp.size() * 2]) == "[8, 8]" and range(world)[-1] == 7 and 5 % world == 5
odd = dist.new_group([0, 1, 2])
torch.manual_seed(0)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(2, 4)).square().sum() / (2 * replicas)
    loss = loss * 8 / 4.0
    loss.backward()
    for weight in model.parameters():
        dist.all_reduce(weight.grad)
        weight.grad /= tp.size()
        weight.grad.mul_(1 / world)
        weight.grad.div_(odd.size())
    optimizer.step()
"""


_ENVIRONMENT = """
import os, torch, torch.distributed as dist
from settings import SIZE, LOCAL
dist.init_process_group("gloo")
world = int(os.environ.get("WORLD_SIZE", 1))
assert type(LOCAL) is int and world == SIZE == 8 and world // 4 == 2
assert int("8") == 8 and type(int("8")) is int
torch.manual_seed(0)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(2, 4)).square().sum() / world
    loss.backward()
    for weight in model.parameters():
        dist.all_reduce(weight.grad)
        weight.grad.mul_(SIZE)
    optimizer.step()
"""
_SETTINGS = """
import os
SIZE, LOCAL = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])
"""


_OPERATORS = "add sub mul truediv floordiv mod pow lt le eq and_ lshift".split()
_OTHERS = [1, 3, True, 1.0, 2.5, np.int64(1), np.arange(1, 4), torch.arange(1, 4), torch.tensor(2)]


@pytest.mark.parametrize("name", _OPERATORS)
@pytest.mark.parametrize("other", _OTHERS, ids=repr)
def test_a_size_computes_as_its_number_does(name, other):
    size, compute = groupsizes.all_ranks(8) * 2, getattr(operator, name)
    for ours, plain in (((size, other), (16, other)), ((other, size), (other, 16))):
        try:
            expected = compute(*plain)
        except (TypeError, RuntimeError) as error:  # such as a shift by a float
            with pytest.raises(type(error)):
                compute(*ours)
            continue
        made = compute(*ours)
        assert np.array_equal(np.asarray(made), np.asarray(expected))
        assert isinstance(made, type(expected))


def _recorded(folder) -> dict:
    return recorded(folder, "--world", 8, "--ranks", "one", "script.py")[0]


def test_the_size_of_the_environment_is_one(tmp_path):
    (tmp_path / "script.py").write_text(_ENVIRONMENT)
    (tmp_path / "settings.py").write_text(_SETTINGS)
    trace = _recorded(tmp_path)
    scaling = [op for op in trace["ops"] if "scale" in op["op"]]
    assert [op["op"] for op in scaling] == ["scale", "scale", "scale_", "scale_"]
    place = trace["locs"][scaling[0]["loc"]]
    assert (place["line"], place["col"]) == (13, 12), "as the source is written"


def test_a_product_with_a_size_is_a_scale(tmp_path):
    (tmp_path / "script.py").write_text(_SCRIPT)
    trace = _recorded(tmp_path)
    scaling = [op for op in trace["ops"] if "scale" in op["op"]]
    scales = [(op["op"], op["attrs"]["by"], op.get("phase", "fwd")) for op in scaling]
    assert scales == [
        ("scale", "1/dp", "fwd"),
        ("scale", "1/dp", "bwd"),
        *[("scale_", "1/tp", "opt"), ("scale_", "1/(dp*tp)", "opt")] * 2,
    ]
    products = [op for op in trace["ops"] if op["op"].startswith(("aten.mul.", "aten.div"))]
    numbers = [op["in"][1] for op in products if len(op["in"]) > 1]
    assert 0.5 in numbers and 8 in numbers and 4.0 in numbers and 3 in numbers
