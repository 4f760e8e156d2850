"""Which step of a script is recorded."""

import json
import subprocess
import sys

import judged
import pytest
import spmd_trace.torch  # noqa: F401  before torch
import torch
from spmd_trace.torch.script.step import Steps
from spmd_trace.torch.script.world import Job, Seen


def steps_of_two() -> Steps:
    return Steps(Job(2, 1), Seen(), 2, lambda recorder: None, {})


def optimizer(*parameters):
    given = parameters or [torch.nn.Parameter(torch.zeros(2))]
    return torch.optim.SGD(given, lr=0.1)


def test_a_step_has_the_updates_of_all_optimizers():
    """What a generator does after the first update of its discriminator is still the first step."""
    steps = steps_of_two()
    discriminator, generator = optimizer(), optimizer()
    steps._held = {discriminator, generator}
    steps.counts = {discriminator: 1}
    assert steps.taken == 0 and not steps.between
    steps.counts = {discriminator: 1, generator: 1}
    assert steps.taken == 1 and steps.between


def test_an_optimizer_that_the_script_does_not_use_is_not_waited_for():
    steps = steps_of_two()
    used = optimizer()
    steps._held, steps.counts = {used, optimizer()}, {used: 2}
    assert steps.taken == 2 and steps.between


def test_an_optimizer_around_another_is_not_waited_for():
    """Such as those of accelerate and Lightning, whose own `step` calls the other one's."""
    steps = steps_of_two()
    inner = optimizer()
    around = optimizer(*inner.param_groups[0]["params"])
    steps._held, steps.counts = {inner, around}, {inner: 1}
    assert steps.taken == 1 and steps.between


_UNUSED = """
import torch
model = torch.nn.Linear(2, 2)
unused = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(4, 2)).square().sum().backward()
    optimizer.step()
"""


def record(folder, code: str, *words):
    (folder / "script.py").write_text(code)
    line = [sys.executable, "-m", "spmd_trace", "record", "--world", 2, *words, "script.py"]
    line = list(map(str, line))
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_step_that_begins_late_is_recorded_whole(number, tmp_path):
    """That one of two is not used is known when the other one has taken two steps."""
    done = record(tmp_path, _UNUSED, "--step", number)
    assert done.returncode == 0, done.stderr
    ops = [op["op"] for op in json.loads((tmp_path / "step.spmd.json").read_text())["ops"]]
    assert ops.count("aten.linear.default") == 1 and "aten.add_.Tensor" in ops


def test_the_only_step_of_a_script_is_recorded(tmp_path):
    once = _UNUSED.replace("range(5)", "range(1)")
    done = record(tmp_path, once, "--step", 1)
    assert done.returncode == 0, done.stderr
    trace = json.loads((tmp_path / "step.spmd.json").read_text())
    assert trace["phase"] == "step"


def test_a_job_of_one_rank_is_recorded(tmp_path):
    done = record(tmp_path, _UNUSED, "--world", 1)
    assert done.returncode == 0, done.stderr


def test_a_part_that_runs_nothing_is_refused(tmp_path):
    code = "import torch\nx = 1\ny = 2\nz = torch.zeros(2)\n"
    done = record(tmp_path, code, "--from", "script.py:2", "--until", "script.py:3")
    assert done.returncode == 3 and done.stdout == ""
    assert "script.py: what is recorded runs no operation" in done.stderr
    assert not (tmp_path / "step.spmd.json").exists()


_LEFT = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
w = torch.nn.Parameter(torch.randn(4))
optimizer = torch.optim.SGD([w], lr=0.1)
for step in range(3):
    CLEAR
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(10 * step + dist.get_rank()))
    (x @ w).square().mean().backward()
    dist.all_reduce(w.grad)
    w.grad.div_(dist.get_world_size())
    optimizer.step()
    AFTER
"""
_CLEARED = {
    "first": ("optimizer.zero_grad()", "", []),
    "first, to zero": ("optimizer.zero_grad(set_to_none=False)", "", []),
    "last": ("", "optimizer.zero_grad()", []),
    "last, to zero": ("", "optimizer.zero_grad(set_to_none=False)", []),
    "never": ("", "", ["uncleared-gradient"]),
}


@pytest.mark.parametrize("data", ["real", "fake"])
@pytest.mark.parametrize("cleared", _CLEARED)
def test_a_gradient_that_is_never_cleared_is_added_to(cleared, data, tmp_path):
    first, last, expected = _CLEARED[cleared]
    code = _LEFT.replace("CLEAR", first).replace("AFTER", last)
    done = record(tmp_path, code, "--world", 2, "--data", data)
    assert done.returncode == 0, done.stderr
    found = judged.reports(tmp_path / "step.spmd.json")
    assert [row["name"] for row in found] == expected


def test_what_the_step_before_has_left_to_do_is_left_out(tmp_path):
    """Copies of parameters that it takes are no use of them which a gradient belongs to."""
    copied = """
    optimizer.zero_grad()
    with torch.no_grad():
        mean = w.detach().clone() if step == 0 else mean.lerp_(w.detach(), 0.1)"""
    code = _LEFT.replace("    CLEAR\n", "").replace("    AFTER", copied)
    done = record(tmp_path, code, "--world", 2)
    assert done.returncode == 0, done.stderr
    trace = json.loads((tmp_path / "step.spmd.json").read_text())
    assert judged.reports(tmp_path / "step.spmd.json") == []
    made = {one["id"]: op["op"] for op in trace["ops"] for one in op.get("out", [])}
    belong = [made[op["bwd_of"]] for op in trace["ops"] if "bwd_of" in op]
    assert belong and not any("detach" in name for name in belong)


_CLOSURE = """
import torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def closure():
    optimizer.zero_grad()
    loss = model(torch.randn(4, 2)).square().sum()
    loss.backward()
    return loss
for _ in range(4):
    optimizer.step(closure)
"""


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("given", ["closure", "closure=closure"])
def test_what_a_closure_computes_is_no_part_of_the_update(given, number, tmp_path):
    """Optimizers call it within `step`, as those of Lightning do for every step."""
    code = _CLOSURE.replace("step(closure)", f"step({given})")
    done = record(tmp_path, code, "--step", number)
    assert done.returncode == 0, done.stderr
    trace = json.loads((tmp_path / "step.spmd.json").read_text())
    phases = {}
    for op in trace["ops"]:
        phases.setdefault(op.get("phase", "fwd"), []).append(op)
    assert "aten.linear.default" in [op["op"] for op in phases["fwd"]]
    assert "bwd_of" in phases["bwd"][-1]
    assert {op["op"] for op in phases["opt"]} == {"aten.add_.Tensor"}
