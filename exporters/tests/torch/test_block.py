"""A step without a script: `spmd_trace.job` and `step` in a notebook or a test, and the fixture."""

import json
import os
import subprocess
import sys

import jsonschema
import pytest

import judged
import spmd_trace
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import debug
from torch.nn.parallel import DistributedDataParallel
from traces import schema, stale_uses

needs_checker = pytest.mark.skipif(judged.checker() is None, reason="SPMDLINT names no checker")


def _build():
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(4, 4).cuda())
    return model, torch.optim.Adam(model.parameters(), lr=0.1)


def _train(model, optimizer, summed=True):
    with torch.enable_grad() if summed else model.no_sync():
        loss = model(torch.randn(2, 4, device="cuda")).square().mean()
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def _checked(trace: dict) -> dict:
    jsonschema.Draft202012Validator(schema()).validate(trace)
    assert stale_uses(trace) == []
    return trace


def test_what_runs_inside_is_the_step(tmp_path):
    with spmd_trace.job(ranks=4, rank=1):
        model, optimizer = _build()
        _train(model, optimizer)
        with spmd_trace.step(tmp_path / "step.spmd.json") as step:
            _train(model, optimizer)
    assert not dist.is_initialized() and "WORLD_SIZE" not in os.environ
    trace = _checked(step.trace)
    assert (tmp_path / "step.spmd.json").read_text() == step.text
    assert (trace["world"], trace["rank"], trace["phase"]) == (4, 1, "step")
    roles = [p["role"] for p in trace["params"]]
    assert roles.count("param") == 2 and roles.count("input") == 1 and roles.count("opt_state") >= 4
    assert [p["type"] for p in trace["params"] if p["role"] == "input"] == [{"dp": "V"}]
    (file,) = [f if isinstance(f, str) else f["path"] for f in trace["files"]]
    assert file.endswith("test_block.py")
    assert step.refused == []


@needs_checker
def test_findings_name_lines_of_the_test():
    with spmd_trace.job(ranks=4):
        model, optimizer = _build()
        with spmd_trace.step() as right:
            _train(model, optimizer)
        with spmd_trace.step() as wrong:
            _train(model, optimizer, summed=False)
    assert right.findings() == []
    found = wrong.findings()
    assert "unreduced-gradient" in {one["name"] for one in found}
    assert "optimizer.step()" in wrong.report()


@needs_checker
def test_the_report_names_the_trace_and_no_file_that_is_gone(tmp_path):
    """No wrapper says what the batch is, so that the proof ends at what the trace declares."""
    with spmd_trace.job(ranks=4):
        dist.init_process_group("nccl")
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for file, name in ((None, "step:1:1"), (tmp_path / "a.spmd.json", "a.spmd.json:1:1")):
            with spmd_trace.step(file, model=model) as step:
                _train(model, optimizer)
            assert f"{name} (`input" in step.report()


def test_a_decorated_function_is_recorded_each_time(tmp_path):
    with spmd_trace.job(ranks=2):
        model, optimizer = _build()

        @spmd_trace.step(tmp_path / "step.spmd.json", model=model)
        def train(size):
            model(torch.randn(size, 4)).sum().backward()

        for size in (2, 3):
            train(size)
            (batch,) = [
                p
                for p in json.loads((tmp_path / "step.spmd.json").read_text())["params"]
                if p["role"] == "input"
            ]
            assert batch["shape"] == [size, 4]


def _cell(kept):
    """A cell of a notebook: its variables, and results that IPython keeps, outlive the job."""
    with spmd_trace.job(ranks=4):
        dist.init_process_group("nccl")
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))
        fully_shard(model[0].cuda())
        fully_shard(model.cuda())
        optimizer = torch.optim.AdamW(model.parameters())
        kept += [model, optimizer]
        _train(model, optimizer)
        with spmd_trace.step() as step:
            _train(model, optimizer)
    return step


def test_a_cell_with_fsdp_can_be_run_again():
    """Models that are sharded over the groups of a job that is over are none of the next one."""
    kept = []
    first, second = _cell(kept), _cell(kept)
    assert [op["op"] for op in second.trace["ops"]] == [op["op"] for op in first.trace["ops"]]
    names = [p["name"] for p in first.trace["params"]]
    assert [p["name"] for p in second.trace["params"]] == names
    assert "0.weight" in names and "2.bias" in names
    del kept[:2]  # modules inside of the first model may outlive it
    assert [p["name"] for p in _cell(kept).trace["params"]] == names


def test_what_dtensor_asks_of_shapes_is_no_operation():
    """The first step of a process, for which DTensor knows no shapes yet."""
    if not hasattr(debug, "_clear_sharding_prop_cache"):
        pytest.skip("DTensor of this version does not forget shapes")
    debug._clear_sharding_prop_cache()
    with spmd_trace.job(ranks=4):
        dist.init_process_group("nccl")
        model = fully_shard(torch.nn.Linear(4, 4).cuda())
        optimizer = torch.optim.AdamW(model.parameters())
        with spmd_trace.step() as step:
            _train(model, optimizer)
    ops = [op["op"] for op in step.trace["ops"]]
    assert ops.count("aten.addcdiv_.default") == 2 and "aten.empty_strided.default" not in ops


def test_kinds_that_nothing_says_can_be_given():
    with spmd_trace.job(ranks=2):
        model = torch.nn.Linear(4, 4)
        with spmd_trace.step(kinds={"weight": {"ranks": "R"}}, model=model) as step:
            model(torch.randn(2, 4)).sum().backward()
    kinds = {p["name"]: p["type"] for p in step.trace["params"] if p["role"] == "param"}
    assert kinds == {"weight": {"ranks": "R"}, "bias": {"ranks": "?"}}


def test_a_step_that_fails_leaves_nothing(tmp_path):
    with spmd_trace.job(ranks=2):
        with pytest.raises(ZeroDivisionError), spmd_trace.step(tmp_path / "step.spmd.json"):
            1 / 0
        with spmd_trace.step() as after:  # the next one is recorded
            torch.ones(2).sum()
    assert list(tmp_path.iterdir()) == [] and after.text


def test_a_step_is_one_of_a_job():
    with pytest.raises(RuntimeError, match="inside of `with spmd_trace.job"), spmd_trace.step():
        pass
    with pytest.raises(ValueError, match="rank 2: there are 2 ranks"), spmd_trace.job(2, 2):
        pass
    with (
        spmd_trace.job(2),
        pytest.raises(RuntimeError, match="simulates a rank already"),
        spmd_trace.job(2),
    ):
        pass


_SUITE = """
import spmd_trace.torch, torch, torch.distributed as dist

def test_a_step(spmd_job):
    spmd_job(ranks=4)
    dist.init_process_group("nccl")
    model = torch.nn.Linear(2, 2)
    with spmd_trace.step() as step:
        model(torch.randn(3, 2)).sum().backward()
    assert step.trace["world"] == 4

def test_the_job_is_over():
    assert not dist.is_initialized()
"""


def test_the_fixture_begins_a_job_that_ends_with_the_test(tmp_path):
    (tmp_path / "test_suite.py").write_text(_SUITE)
    words = ["-p", "spmd_trace.pytest_plugin", "-p", "no:cacheprovider", "-q", "test_suite.py"]
    line = [sys.executable, "-m", "pytest", *words]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # it may be installed, too
    done = subprocess.run(
        line, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr
