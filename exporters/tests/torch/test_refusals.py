"""What cannot be recorded: the recording goes on, says so at the end, and claims nothing of it."""

import json
import subprocess
import sys

import jsonschema
import pytest

import judged
from traces import schema, stale_uses

needs_checker = pytest.mark.skipif(judged.checker() is None, reason="SPMDLINT names no checker")

_SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
odd = dist.new_group([0, 1, 2])

def step():
    optimizer.zero_grad()
    x = torch.randn(3, 4)
    lists = [torch.empty(3, 4) for _ in range(3)] if rank == 0 else None
    if rank < 3:
        dist.gather(x, lists, dst=0, group=odd)
    got = torch.empty(3, 4)
    dist.recv(got)
    a, b = model(x).square().sum(), model(got).sum()
    torch.autograd.backward([a, b])
    for weight in model.parameters():
        dist.all_reduce(weight.grad)
        weight.grad /= 4
    optimizer.step()

for _ in range(3):
    step()
"""


def _run(folder, *words):
    (folder / "script.py").write_text(_SCRIPT)
    line = [
        sys.executable,
        "-m",
        "spmd_trace",
        *words,
        "--world",
        "4",
        "--ranks",
        "one",
        "script.py",
    ]
    return subprocess.run(line, capture_output=True, text=True, check=False, cwd=folder)


def test_all_that_is_refused_is_listed_and_the_rest_is_recorded(tmp_path):
    done = _run(tmp_path, "record")
    assert done.returncode == 4, done.stderr
    assert done.stderr.splitlines() == [
        "spmd-trace: not recorded, and what comes of it is unknown:",
        "  script.py:15: a gather or a scatter among ranks that are no axis of the mesh; "
        "write it by collectives of one tensor, such as all_gather_into_tensor",
        "  script.py:17: a message from any rank; say from which rank it comes",
    ]
    trace = json.loads((tmp_path / "step.spmd.json").read_text())
    jsonschema.Draft202012Validator(schema()).validate(trace)
    assert stale_uses(trace) == []
    calls = [op for op in trace["ops"] if op["op"] == "call"]
    assert [op["regions"]["body"] for op in calls] == ["@unrecorded1", "@unrecorded2"]
    assert len(calls[0]["in"]) == 4 and len(calls[0]["out"]) == 3
    received = calls[1]["out"][0]["id"]
    assert any(
        received in op.get("in", []) for op in trace["ops"] if op["op"].startswith("aten.linear")
    )
    # One backward of both: each weight has one gradient, of the sum of the two values.
    assert [op["op"] for op in trace["ops"] if op["op"] == "all_reduce_"] == ["all_reduce_"] * 2


@needs_checker
def test_a_part_that_is_missing_is_an_exit_code(tmp_path):
    done = _run(tmp_path, "lint", "--format=json")
    found = json.loads(done.stdout)
    assert found["inputs"][0]["read"] and "unknown-op" not in done.stdout
    assert done.returncode == (
        1 if [f for f in found["findings"] if f["severity"] == "error"] else 4
    )
