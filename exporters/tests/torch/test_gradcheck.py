"""Gradients against finite differences of the loss, with all ranks running."""

import json
import math
import subprocess
import sys

import pytest

from spmd_trace import gradcheck


def _row(name: str, promised: float, slope: float, behind=None, **more) -> dict:
    slopes = [slope, slope if behind is None else behind]
    return {"name": name, "promised": promised, "slopes": slopes, "noise": 1e-6} | more


def test_a_ratio_is_that_of_gradient_and_slope():
    found = gradcheck.ratios([_row("w", 0.5, 1.0), _row("b", 0.0, 2.0), _row("c", 1.0, 0.0)])
    assert found == {"w": 0.5, "b": 0.0, "c": math.inf}


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(_row("w", 1e-7, -1e-7), id="nothing depends on it"),
        pytest.param(_row("w", 1.0, 1.3, 0.7), id="a kink"),
        pytest.param(_row("w", 1.0, 1.2, 1.2, nearer=[1.1, 1.1]), id="a kink nearby"),
    ],
)
def test_what_is_no_slope_says_nothing(row):
    assert gradcheck.ratios([row]) == {}


def _relative(ratios: dict[str, float], world: int) -> dict[str, float]:
    return gradcheck.relative([_row(name, ratio, 1.0) for name, ratio in ratios.items()], world)


def test_most_parameters_say_what_is_right():
    """A clip multiplies all gradients by what nobody knows."""
    ratios = {"a": 0.061, "b": 0.0609, "c": 0.0611, "norm": 0.244}
    assert _relative(ratios, 4) == {"a": 1, "b": 1, "c": 1, "norm": 4}


def test_the_mean_over_ranks_is_right_although_more_parameters_are_not():
    """Experts are many, and their gradients are sums over the tokens of all ranks."""
    experts = {f"experts.{i}.{w}": 1.0 for i in range(4) for w in ("up", "down", "gate")}
    found = _relative({"head.weight": 0.5, "head.bias": 0.5} | experts, 2)
    assert found["head.weight"] == found["head.bias"] == 1 and found["experts.0.up"] == 2


def test_layers_count_once():
    """A wrong parameter of each layer is no majority."""
    wrong = {f"layers.{i}.norm.weight": 0.25 for i in range(8)}
    found = _relative({"embed": 1.0, "head": 1.0, "norm": 1.0} | wrong, 8)
    assert found["embed"] == 1 and found["layers.3.norm.weight"] == 0.25


def test_without_a_common_ratio_the_mean_is_meant():
    found = _relative({"a": 0.31, "b": 0.11, "c": 0.85, "d": 0.2}, 4)
    assert found == {"a": 1.24, "b": 0.44, "c": 3.4, "d": 0.8}


def test_what_one_rank_disagrees_with_is_meant_so():
    found = gradcheck.without({"a": 0.25, "b": 4, "c": 1}, {"a": 0.3, "c": 0.5})
    assert found == {"b": 4, "c": 1}


def test_a_gradient_may_be_the_slope_on_one_side_of_a_kink():
    rows = [_row("a", 0.25, 1.0), _row("b", 0.25, 1.0), _row("relu", 0.26, 1.04, 0.9)]
    assert gradcheck.relative(rows, 4)["relu"] == 1
    assert gradcheck.relative([*rows, _row("off", 0.3, 1.04, 0.9)], 4)["off"] == 1.237


def test_zero_is_no_part_of_a_number():
    assert _relative({"a": 0.5, "b": 0.5, "c": 1e-5, "d": 0.5}, 2)["c"] == 0


_SCRIPT = """
import sys, torch, torch.distributed as dist

class Experts(torch.autograd.Function):  # blocks of a weight, one on each rank, for all batches
    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x)
        return out

    @staticmethod
    def backward(ctx, gradient):
        out = torch.empty_like(gradient)
        dist.all_to_all_single(out, gradient)
        return out

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
first, last = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)
torch.manual_seed(rank)
expert = torch.nn.Linear(8, 8)
shared = [*first.parameters(), *last.parameters()]
optimizer = torch.optim.SGD([*shared, *expert.parameters()], lr=0.1)
for step in range(3):
    x = torch.randn(2 * world, 4)
    optimizer.zero_grad()
    hidden = Experts.apply(torch.tanh(first(x)))
    loss = last(Experts.apply(torch.tanh(expert(hidden)))).square().mean()
    loss.backward()
    for parameter in shared:
        dist.all_reduce(parameter.grad)
    for parameter in shared if sys.argv[1] == "wrong" else [*shared, *expert.parameters()]:
        parameter.grad /= world
    optimizer.step()
"""


def _confirmed(code: str, variant: str, folder) -> tuple[dict[str, float], str]:
    """The ratios in the trace of a script, and what the recorder says."""
    script, trace = folder / "train.py", folder / "train.json"
    script.write_text(code)
    words = ["record", "--confirm", "--world", "2", "-o", str(trace), str(script), variant]
    command = [sys.executable, "-m", "spmd_trace", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=600)
    assert done.returncode == 0, done.stderr
    params = json.loads(trace.read_text())["params"]
    return {p["name"]: p["gradient_ratio"] for p in params if "gradient_ratio" in p}, done.stderr


@pytest.mark.parametrize("variant", ["right", "wrong"])
def test_gradients_of_a_script_are_checked(variant, tmp_path):
    found, said = _confirmed(_SCRIPT, variant, tmp_path)
    assert len(found) == 6, said
    off = {name: ratio for name, ratio in found.items() if ratio != 1}
    assert off == ({} if variant == "right" else {"expert.weight": 2, "expert.bias": 2}), found


_BY_HAND = """
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
first, second, third = (torch.randn(n, m, requires_grad=True) for n, m in ((4, 8), (8, 8), (8, 1)))
torch.manual_seed(rank)
for step in range(3):
    hidden = torch.tanh(torch.tanh(torch.randn(2, 4) @ first) @ second)
    gradients = torch.autograd.grad((hidden @ third).square().mean(), [first, second, third])
    for gradient in gradients if sys.argv[1] == "right" else gradients[1:]:
        dist.all_reduce(gradient)
    with torch.no_grad():
        for weight, gradient in zip([first, second, third], gradients):
            weight -= 0.1 * gradient / world
"""


@pytest.mark.parametrize("variant", ["right", "wrong"])
def test_a_step_by_hand_is_checked_by_what_it_moves(variant, tmp_path):
    found, said = _confirmed(_BY_HAND, variant, tmp_path)
    assert len(found) == 3 and found["second"] == found["third"] == 1, said
    assert (found["first"] == 1) == (variant == "right"), found
