"""Ranks that do not call the same collectives: found by running them all, without waiting long."""

import json
import os
import subprocess
import sys
import time

import jsonschema
import pytest

import judged
from spmd_trace.runs import divergence
from traces import schema

needs_checker = pytest.mark.skipif(judged.checker() is None, reason="SPMDLINT names no checker")


def _row(call: str, about: str = "f32[4]", ranks=(0, 1), line: int = 1) -> dict:
    frame = {"file": "a.py", "path": "a.py", "func": "<module>", "line": line, "col": 1}
    return {"call": call, "group": ["g", list(ranks)], "about": about, "stack": [frame]}


def test_equal_lists_do_not_part():
    rows = [_row("broadcast"), _row("all_reduce")]
    assert divergence.parted({0: rows, 1: rows[:1]}) is None


def test_the_majority_calls_what_is_meant():
    reduce, send = _row("all_reduce", ranks=(0, 1, 2)), _row("broadcast", ranks=(0, 1, 2), line=7)
    found = divergence.parted({0: [send], 1: [reduce], 2: [reduce]})
    assert found.call.ranks == [1, 2] and found.instead.ranks == [0]
    assert found.sentence() == (
        "a.py:1: `all_reduce(f32[4])` of ranks 1, 2 meets `broadcast(f32[4])` at a.py:7 of rank 0"
    )


def test_two_ranks_are_enough_to_see_it():
    """One that is slower, or has failed over it, may never come there."""
    reduce, send = _row("all_reduce", ranks=(0, 1, 2)), _row("broadcast", ranks=(0, 1, 2))
    found = divergence.parted({0: [send], 1: [reduce], 2: []})
    assert found.call.ranks == [0] and found.instead.ranks == [1] and not found.complete
    assert divergence.parted({0: [send], 1: [reduce], 2: [reduce]}).complete


def test_groups_are_compared_one_by_one():
    """What two groups do between themselves may come in any order, as long as nobody waits."""
    one, other = _row("all_reduce"), _row("all_reduce") | {"group": ["h", [0, 1]]}
    assert divergence.parted({0: [one, other], 1: [other, one]}) is None
    found = divergence.left_waiting({0: [one], 1: [other]})
    assert found.call.ranks == [0] and found.instead.ranks == [1]


def _chosen(about: str, line: int) -> dict:
    return _row("DistributedSampler", about, line=line) | {"chosen": True}


def test_what_ranks_choose_is_compared_line_by_line():
    """One rank alone may go through the samples of a test; none waits for another there."""
    train, test = _chosen("8 samples, seed 0", 1), _chosen("4 samples", 2)
    assert divergence.parted({0: [train, test, train], 1: [train, train]}) is None
    assert divergence.left_waiting({0: [train, test], 1: [train]}) is None
    found = divergence.parted({0: [test, train], 1: [_chosen("8 samples, seed 1", 1)]})
    assert found.call.ranks == [0] and found.instead.ranks == [1]


def _send(peer: int, size: int = 8, tag: int = 0, call: str = "send", line: int = 1) -> dict:
    words = f"f32[{size}], {'to' if call == 'send' else 'from'} rank {peer}"
    message = {"peer": peer, "tag": tag, "size": [["f32", size]]}
    return _row(call, words + (f", tag {tag}" if tag else ""), line=line) | {"message": message}


def _receive(*words, **more) -> dict:
    return _send(*words, **more, call="recv", line=7)


def test_messages_are_compared_in_their_order_by_rank_and_tag():
    """A message that is on its way is none that is missing."""
    sent = [_send(1, 8), _send(1, 4, tag=2), _send(1, 2)]
    received = [_receive(0, 4, tag=2), _receive(0, 8)]
    assert divergence.parted({0: sent, 1: received}) is None
    found = divergence.parted({0: sent, 1: [*received, _receive(0, 3)]})
    assert found.sentence() == (
        "a.py:1: `send(f32[2], to rank 1)` of rank 0 "
        "meets `recv(f32[3], from rank 0)` at a.py:7 of rank 1"
    )


# What ranks 0 and 1 have called when both stand still.
_WAITING = {
    "another tag": (
        [_send(1)],
        [_receive(0, tag=3)],
        "a.py:7: `recv(f32[8], from rank 0, tag 3)` of rank 1 "
        "meets `send(f32[8], to rank 1)` at a.py:1 of rank 0",
    ),
    "another call": (
        [_row("barrier", "")],
        [_receive(0)],
        "a.py:7: `recv(f32[8], from rank 0)` of rank 1 "
        "meets `barrier()`, the last call, at a.py:1 of rank 0",
    ),
    "ended": (
        [{"end": True}],
        [_receive(0)],
        "a.py:7: `recv(f32[8], from rank 0)` of rank 1 meets the end of the script of rank 0",
    ),
    "all there": ([_send(1)], [_receive(0)], None),
}


@pytest.mark.parametrize("case", _WAITING)
def test_what_is_waited_for_and_not_sent(case):
    *logs, sentence = _WAITING[case]
    found = divergence.unmatched(dict(enumerate(logs)))
    assert (found and found.sentence()) == sentence


def test_what_was_sent_and_does_not_arrive_is_no_divergence():
    logs = {0: [_send(1), _receive(1)], 1: [_receive(0), _receive(2)], 2: [_row("barrier", "")]}
    assert divergence._undelivered(logs) == ""
    assert divergence.unmatched(logs) is not None
    logs[1].insert(1, _send(0))
    assert divergence._undelivered(logs).startswith("a.py:7: rank 0 waits for a message that was")


_MESSAGES = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        dist.isend(torch.ones(4), 1)
    if dist.get_rank() == 1:
        dist.recv(torch.ones(4), 0, tag=3)
    model(torch.randn(2, 4)).square().sum().backward()
    optimizer.step()
"""


@needs_checker
def test_a_message_that_is_not_sent_is_a_finding(tmp_path):
    done, _ = _lint(tmp_path, _MESSAGES, "lint", "--format=concise")
    assert done.returncode == 1, done.stderr
    assert (
        "script.py:11:9: error[rank-divergence]: `recv(f32[4], from rank 0, tag 3)` of rank 1 "
        "meets `send(f32[4], to rank 1)` at script.py:9 of rank 0" in done.stdout
    )


_SCRIPT = """
import sys, torch, torch.distributed as dist
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def update(step):
    for weight in model.parameters():
        dist.all_reduce(weight.grad)
    %s
    optimizer.step()

for step in range(4):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).square().sum().backward()
    update(step)
"""
# What stands in `update`, the sentence, and the lines of both stacks.
_CASES = {
    "not called": (
        "if rank != 1: dist.all_reduce(torch.ones(3))",
        "`all_reduce(f32[3], sum)` of ranks 0, 2 "
        "meets `all_reduce(f32[4, 4], sum)` at script.py:11 of rank 1",
        (12, 11),
    ),
    "another order": (
        "if rank: dist.all_reduce(torch.ones(3))\n"
        "    dist.broadcast(torch.ones(3), 0)\n"
        "    if not rank: dist.all_reduce(torch.ones(3))",
        "`all_reduce(f32[3], sum)` of ranks 1, 2 "
        "meets `broadcast(f32[3], root 0)` at script.py:13 of rank 0",
        (12, 13),
    ),
    "another shape": (
        "dist.all_reduce(torch.ones(3 + (rank == 2)))",
        "`all_reduce(f32[3], sum)` of ranks 0, 1 "
        "meets `all_reduce(f32[4], sum)` at script.py:12 of rank 2",
        (12, 12),
    ),
    "another reduction": (
        "dist.all_reduce(torch.ones(3), op=dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM)",
        "`all_reduce(f32[3], max)` of ranks 1, 2 "
        "meets `all_reduce(f32[3], sum)` at script.py:12 of rank 0",
        (12, 12),
    ),
    "another group": (
        "pair = dist.new_group([0, 1])\n"
        "    dist.all_reduce(torch.ones(3), group=pair if rank == 0 else None)",
        "`all_reduce(f32[3], sum)` over ranks 0, 1, 2 of ranks 1, 2 meets "
        "`all_reduce(f32[3], sum)` over ranks 0, 1 at script.py:13 of rank 0",
        (13, 13),
    ),
    "ended": (
        "step == 1 and rank == 1 and sys.exit()\n    dist.barrier()",
        "`barrier()` over ranks 0, 1, 2 of ranks 0, 2 meets the end of the script of rank 1",
        (13, None),
    ),
}


def _lint(folder, code: str, *words):
    (folder / "script.py").write_text(code)
    line = [sys.executable, "-m", "spmd_trace", *words, "--world", "3", "script.py"]
    start = time.monotonic()
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=folder)
    return done, time.monotonic() - start


_SAMPLES = """
import torch, torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("nccl")
data = torch.randn(60, 4)
sampler = DistributedSampler(data, seed=%s)
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(4):
    sampler.set_epoch(epoch)
    for x in DataLoader(data, batch_size=10, sampler=sampler):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
"""


_SELDOM = """
import runpy, sys
from spmd_trace.runs import divergence
divergence.Watch._pause = 8.0
sys.argv = ["spmd-trace", "lint", "--world", "3", "script.py"]
runpy.run_module("spmd_trace", run_name="__main__")
"""


@needs_checker
def test_ranks_that_end_between_two_looks_are_compared(tmp_path):
    (tmp_path / "script.py").write_text(_SAMPLES % "dist.get_rank()")
    line = [sys.executable, "-c", _SELDOM]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "error[rank-divergence]" in done.stdout, done.stderr


@needs_checker
def test_samplers_that_order_the_samples_differently_are_a_finding(tmp_path):
    done, _ = _lint(tmp_path, _SAMPLES % "dist.get_rank()", "lint", "--format=json")
    assert done.returncode == 1, done.stderr
    found = [one["places"][0]["line"] for one in json.loads(done.stdout)["findings"]]
    assert found == [6]
    done, _ = _lint(tmp_path, _SAMPLES % "7", "lint")
    assert "no findings" in done.stdout + done.stderr


@needs_checker
@pytest.mark.parametrize("case", _CASES)
def test_ranks_that_part_are_a_finding(case, tmp_path):
    if case != "not called" and not os.environ.get("SPMD_TEST_ALL"):
        pytest.skip("takes minutes: SPMD_TEST_ALL=1 runs it")
    inside, sentence, (line, other) = _CASES[case]
    done, seconds = _lint(tmp_path, _SCRIPT % inside, "lint", "--format=json")
    assert done.returncode == 1, done.stderr
    (found,) = [
        one for one in json.loads(done.stdout)["findings"] if one["name"] == "rank-divergence"
    ]
    assert found["message"] == sentence and found["places"][0]["line"] == line
    here, there = [note["text"].partition(": ")[2] for note in found["notes"]]
    last = 18 + inside.count("\n")
    assert here == f"script.py:{line} in update, script.py:{last}"
    assert there == (
        f"script.py:{other} in update, script.py:{last}" if other else "the script has ended"
    )
    assert seconds < 60


def test_the_trace_has_the_divergence(tmp_path):
    done, _ = _lint(tmp_path, _SCRIPT % _CASES["not called"][0], "record")
    assert done.returncode == 0 and "rank-divergence: script.py:12: `all_reduce" in done.stderr
    trace = json.loads((tmp_path / "step.spmd.json").read_text())
    jsonschema.Draft202012Validator(schema()).validate(trace)
    assert trace["ops"][0]["op"] == "diverge" and trace["op_count"] == len(trace["ops"])
    assert done.stdout == f"step.spmd.json: {len(trace['ops'])} operations\n"


_SLOW = """
    import time
    if rank == 0: time.sleep(6)
    dist.barrier()
    if step == 1 and rank == 0: model(torch.ones(2, 4))
    dist.barrier()
"""


def test_a_rank_that_others_wait_for_is_no_divergence(tmp_path):
    """It reads a file, say; and where it goes on to use the model alone, its step ends sooner."""
    done, _ = _lint(tmp_path, _SCRIPT % _SLOW.strip(), "record")
    assert done.returncode == 0 and done.stderr == ""
