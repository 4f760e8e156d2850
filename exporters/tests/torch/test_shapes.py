"""Large tensors without values: what is computed, what is refused, and what fingerprints prove."""

import json
import math
import subprocess
import sys

import pytest

import spmd_trace.torch  # noqa: F401  before torch: it says what to do without CUDA libraries
import torch
from spmd_trace import ranks
from spmd_trace.torch.hostnumbers import Missing
from spmd_trace.torch.communication.mesh import Axis, Mesh
from spmd_trace.torch.script import evidence, shapes
from spmd_trace.torch.script.fingerprints import Node, Table
from traces import recorded

_MESH = Mesh("main", [Axis("dp", 2, 2), Axis("tp", 2, 1)])
_SIDE = 1200  # of a matrix that is large


def _digests(make, rank: int = 0, seed: int = 0) -> dict[str, str | None] | None:
    torch.manual_seed(seed)
    with shapes.without_values(rank):
        return evidence.digest(make()).along_axes(_MESH, rank)


def _differ(make, other, **how) -> bool | None:
    one, two = _digests(make), _digests(other, **how)
    return ranks._differs(one["tp"], two["tp"])


def _drawn():
    return torch.randn(_SIDE, _SIDE)


def _rows(start: int):
    return lambda: _drawn()[start : start + 600].clone().mul_(0.02)


def test_large_tensors_have_no_values_and_small_ones_do():
    with shapes.without_values(0) as cost:
        large, small = _drawn(), torch.arange(8.0)
        total = large @ large
        assert total.shape == (_SIDE, _SIDE) and shapes.is_missing(total)
        assert not shapes.is_missing(small) and small.sum().item() == 28
        small += large.sum()
        assert shapes.is_missing(small) and not shapes.is_missing(torch.arange(8).cumsum(0))
        weight = torch.nn.Linear(_SIDE, _SIDE).weight
        (weight @ large).sum().backward()
        assert weight.grad.shape == weight.shape
    assert cost.large and cost.flops >= 3 * 2 * _SIDE**3
    assert cost.bytes >= 2 * 4 * _SIDE**2


def test_a_program_that_decides_by_values_is_refused():
    with shapes.without_values(0):
        loss = _drawn().mean()
        for decide in (bool, int, lambda x: x.item() > 1, lambda x: range(x.item())):
            with pytest.raises(Missing, match="depends on values"):
                decide(loss)
        for ask in (torch.nonzero, torch.Tensor.tolist, lambda x: x[x > 0]):
            with pytest.raises(Missing):
                ask(loss)
        number = loss.item()
        assert f"{number:.3f} {number} {loss:.2f}" == "? ? ?"
        with pytest.raises(Missing):
            min(2 * number / (1 + number), 1.0)


def test_numbers_are_taken_to_be_finite():
    with shapes.without_values(0):
        large = _drawn()
        assert not torch.isnan(large).any() and torch.isfinite(large.mean())
        assert not (torch.isinf(large).any() | torch.isnan(large).any())
        assert math.isfinite(large.mean().item())


def test_modules_move_and_scalers_step():
    with shapes.without_values(0):
        model = torch.nn.Linear(_SIDE, _SIDE).to(torch.float64).float()
        optimizer = torch.optim.AdamW(model.parameters())
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(model(_drawn()).square().mean()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        before = evidence.content(model.weight)
        scaler.step(optimizer)
        scaler.update()
        assert evidence.content(model.weight) != before and scaler.get_scale() == 65536
        assert model.weight.dtype is torch.float32 and shapes.is_missing(model.bias)
        chosen = torch.arange(_SIDE).index_select(0, model.bias.topk(2).indices)
        assert chosen.shape == (2,) and shapes.is_missing(chosen)


def test_equal_fingerprints_are_equal_values():
    assert _differ(_drawn, _drawn) is False
    assert _differ(_rows(0), _rows(0), rank=1) is False
    assert _differ(lambda: _drawn().exp() @ _drawn(), lambda: _drawn().exp() @ _drawn()) is False


def test_different_draws_differ_and_else_nothing_is_known():
    assert _differ(_drawn, _drawn, seed=1) is True
    assert _differ(_rows(0), _rows(600)) is True
    assert _differ(lambda: _drawn().relu(), lambda: _drawn().relu(), seed=1) is None
    assert _differ(lambda: _drawn() * 2, lambda: _drawn() + _drawn(), seed=1) is None
    assert _digests(lambda: torch.zeros(_SIDE, _SIDE).add_(1)) is None  # one number: says nothing


def test_what_a_collective_gives_all_is_the_same_for_all():
    def reduced(rank: int, seed: int, shared: bool = True) -> dict:
        table = Table()
        own = Node("aten.randn", f"seed {seed}", (), drawn=True)
        result = torch.empty(4)
        group = (rank // 2 * 2, rank // 2 * 2 + 1)  # along tp
        table.collective("allreduce_", group, shared, rank, [(own, ())], [(result, True)])
        return table.handle(result).along_axes(_MESH, rank)

    assert reduced(0, seed=0)["tp"] == reduced(1, seed=1)["tp"]
    assert reduced(0, seed=0, shared=False)["tp"] != reduced(1, seed=0, shared=False)["tp"]
    assert reduced(0, seed=0)["dp"] == reduced(2, seed=0)["dp"]
    assert reduced(0, seed=0)["dp"] != reduced(2, seed=1)["dp"]
    assert ranks._differs(reduced(0, seed=0)["dp"], reduced(2, seed=1)["dp"]) is None


_BY_HAND = f"""
import torch, torch.distributed as dist
dist.init_process_group("gloo")
mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
torch.manual_seed(0)
common = torch.nn.Parameter(torch.randn({_SIDE}, {_SIDE}) / 100)
whole = torch.randn({_SIDE}, {2 * _SIDE}) / 100
rank = mesh["tp"].get_local_rank()
piece = torch.nn.Parameter(whole[:, rank * {_SIDE} : (rank + 1) * {_SIDE}].clone())
bias = torch.nn.Parameter(torch.zeros({_SIDE}))
dist.broadcast(common.data, 0)
optimizer = torch.optim.AdamW([common, piece, bias], lr=1e-3)
torch.manual_seed(mesh["dp"].get_local_rank())
for step in range(3):
    batch = torch.randn(4, {_SIDE})
    loss = ((batch @ common) @ piece).square().mean() + bias.square().mean()
    optimizer.zero_grad()
    loss.backward()
    dist.all_reduce(common.grad, group=mesh["tp"].get_group())  # what goes into the pieces
    for parameter in (common, piece, bias):
        dist.all_reduce(parameter.grad, group=mesh["dp"].get_group())
        parameter.grad.div_(2)
    optimizer.step()
    print(step, loss.item())
"""


def _recorded(tmp_path, data: str) -> tuple[dict, str]:
    (tmp_path / "script.py").write_text(_BY_HAND)
    line = [sys.executable, "-m", "spmd_trace", "record", "--world", "4", "--data", data]
    line += ["-o", f"{data}.json", "script.py"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return json.loads((tmp_path / f"{data}.json").read_text()), done.stderr


def test_fingerprints_tell_what_values_tell(tmp_path):
    real, _ = _recorded(tmp_path, "real")
    fake, said = _recorded(tmp_path, "fake")
    assert "--data fake, so large tensors have shapes and no values" in said
    # How autograd keeps a gradient depends on who else holds it.
    kept = ("aten.detach.default", "aten.new_empty_strided.default", "aten.copy_.default")
    names = [[op["op"] for op in one["ops"] if op["op"] not in kept] for one in (fake, real)]
    assert names[0] == names[1]
    values = {one["name"]: one["type"] for one in real["params"]}
    for one in fake["params"]:
        there = values[one["name"]]
        assert all(
            kind == there[axis] or "?" in (kind, there[axis]) for axis, kind in one["type"].items()
        )
    types = {one["name"]: one["type"] for one in fake["params"]}
    assert types["AdamW.params.0"] == {"dp": "R", "tp": "R"}
    assert types["AdamW.params.1"] == {"dp": "R", "tp": "V"}
    assert types["batch"]["dp"] == "V"


def test_what_a_functional_collective_gives_is_known_after_the_wait(tmp_path):
    script = f"""
import torch, torch.distributed as dist
import torch.distributed._functional_collectives
dist.init_process_group("gloo")
weight = torch.nn.Parameter(torch.ones({_SIDE}, {_SIDE}))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    (torch.randn(2, {_SIDE}) @ weight).square().mean().backward()
    total = torch.ops._c10d_functional.all_reduce(weight.grad, "sum", dist.group.WORLD.group_name)
    weight.grad = torch.ops._c10d_functional.wait_tensor(total).div_(2)
    optimizer.step()
"""
    (tmp_path / "script.py").write_text(script)
    trace, _ = recorded(tmp_path, "--world", 2, "--ranks", "one", "--data", "fake", "script.py")
    (total,) = [op["out"] for op in trace["ops"] if op["op"].startswith("all_reduce")]
    (mean,) = [op["in"] for op in trace["ops"] if op["op"].startswith("aten.div_")]
    assert total[0]["id"] == mean[0]


def test_values_that_a_program_needs_are_there_if_they_can_be(tmp_path):
    script = f"""
import torch
model = torch.nn.Linear({_SIDE}, {_SIDE})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = model(torch.randn(2, {_SIDE})).square().mean()
    optimizer.zero_grad()
    loss.backward()
    if loss > 100:
        break
    optimizer.step()
"""
    (tmp_path / "script.py").write_text(script)
    for data, code, words in [
        ("fake", 3, "script.py:9: a branch of the program depends on values"),
        ("auto", 0, "large tensors have only shapes here: so all tensors have values"),
    ]:
        line = [sys.executable, "-m", "spmd_trace", "record", "--world", "2", "--data", data]
        done = subprocess.run([*line, "script.py"], capture_output=True, text=True, cwd=tmp_path)
        assert (done.returncode, words in done.stderr) == (code, True), done.stderr
