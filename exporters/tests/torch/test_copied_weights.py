"""Scripts that differentiate with respect to copies of their weights, made for each step."""

import subprocess
import sys

import pytest
import spmd_trace.torch  # noqa: F401  before torch
import torch
from judged import checker
from spmd_trace.torch.script.sources import Sources

needs_checker = pytest.mark.skipif(checker() is None, reason="SPMDLINT names no checker")

_SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
weight = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
rows = weight.chunk(world)[rank].clone()
torch.manual_seed(rank)
for _ in range(3):
    x = torch.randn(16, 4)
    {copy}
    loss = (x @ whole.T).square().mean()
    loss.backward()
    {reduce}
    {update}
"""
_GATHERED = """whole = torch.empty(8, 4)
    dist.all_gather_into_tensor(whole, rows)
    whole.requires_grad_()"""
_LISTED = """parts = [torch.empty_like(rows) for _ in range(world)]
    dist.all_gather(parts, rows)
    whole = torch.cat(parts).requires_grad_()"""
_CONVERTED = """parts = [torch.empty(4, 4).bfloat16() for _ in range(world)]
    dist.all_gather(parts, rows.bfloat16())
    whole = torch.cat(parts).float().requires_grad_()"""
_REDUCED = """grad = torch.empty_like(rows)
    dist.reduce_scatter_tensor(grad, whole.grad)
    grad /= world"""
_SUMMED = """grad = torch.empty_like(rows)
    dist.reduce_scatter_tensor(grad, whole.grad)"""
_OWN = "grad = whole.grad.chunk(world)[rank]"
_UPDATES = "rows.sub_(grad, alpha=0.1)"


def recorded(script: str, tmp_path):
    (tmp_path / "train.py").write_text(script)
    line = [sys.executable, "-m", "spmd_trace", "record", "--nproc-per-node", "2", "-o"]
    done = subprocess.run(
        [*line, "out.json", "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return tmp_path / "out.json"


def checked(path) -> str:
    line = [checker(), "check", "--format=concise", path]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@needs_checker
@pytest.mark.parametrize("copy", [_GATHERED, _LISTED, _CONVERTED])
def test_gradients_of_gathered_weights_are_proved(copy, tmp_path):
    script = _SCRIPT.format(copy=copy, reduce=_REDUCED, update=_UPDATES)
    said = checked(recorded(script, tmp_path))
    assert "no findings" in said and "1 of 1 parameter proved" in said


@needs_checker
@pytest.mark.parametrize("reduce, found", [(_SUMMED, "scale-mismatch"), (_OWN, "no-transition")])
def test_a_gradient_of_gathered_weights_that_is_not_the_mean_is_found(reduce, found, tmp_path):
    script = _SCRIPT.format(copy=_GATHERED, reduce=reduce, update=_UPDATES)
    assert found in checked(recorded(script, tmp_path))


def test_what_a_leaf_is_made_of_is_followed():
    sources = Sources()
    master = torch.randn(4)
    half, leaf = master.bfloat16(), torch.zeros(4)
    sources.note("bfloat16", [master], [half])
    sources.note("clone", [half], [leaf])
    assert sources.fed_by("bfloat16", [master]) == []
    assert [one is master or one is half for one in sources.of(leaf)] == [True, True]
    assert sources.fed_by("bfloat16", [master]) == [master]
    assert sources.fed_by("mul", [master]) == []


def test_nothing_refers_to_the_parameters_of_a_module():
    """Torch refuses to swap such ones, as a module does that is moved to another device."""
    sources = Sources()
    weight, made = torch.nn.Parameter(torch.zeros(4)), torch.ones(4)
    sources.note("copy_", [weight], [made])
    torch.utils.swap_tensors(weight, torch.nn.Parameter(torch.ones(4)))
    assert sources.of(made) == []
