"""Stages of a pipeline as one program: their order, their messages, and collectives over them."""

import json
import os
import subprocess

import jsonschema
import pytest

import judged
import spmd_trace.torch  # noqa: F401  before torch
from spmd_trace import stages
from traces import recorded as recorded_script
from traces import schema

_BEGIN = """
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
dp = world // 2
stage, copy = divmod(rank, dp)
groups = [dist.new_group([s * dp + c for c in range(dp)]) for s in range(2)]
pairs = [dist.new_group([c, c + dp]) for c in range(dp)]
torch.manual_seed(stage)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    data = torch.Generator().manual_seed(step)
    batch = torch.randn(8, 4, generator=data).chunk(dp)[copy]
    wanted = torch.randn(8, 4, generator=data).chunk(dp)[copy]
    optimizer.zero_grad()
"""
_STAGES = """
    if stage == 0:
        out = model(batch)
        dist.send(out.detach(), rank + dp)
        gradient = torch.empty_like(out)
        dist.recv(gradient, rank + dp)
        out.backward(gradient)
    else:
        got = torch.empty(len(batch), 4)
        dist.recv(got, rank - dp)
        loss = (model(got.requires_grad_()) - wanted).square().mean()
        loss.backward()
        dist.send(got.grad, rank - dp)
"""
_AVERAGE = """
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, group=groups[stage])
        parameter.grad /= dp
"""
_CLIP = """
    square = sum(parameter.grad.square().sum() for parameter in model.parameters())
    dist.all_reduce(square, group=pairs[copy])
    for parameter in model.parameters():
        parameter.grad *= 1 / (square.sqrt() + 1)
"""
_END = """
    optimizer.step()
"""


def recorded(tmp_path, code: str, *words):
    (tmp_path / "script.py").write_text(code)
    return recorded_script(tmp_path, *words, "script.py")


def test_stages_are_one_program_along_the_other_axes(tmp_path):
    trace, said = recorded(tmp_path, _BEGIN + _STAGES + _AVERAGE + _CLIP + _END, "--world", 4)
    jsonschema.Draft202012Validator(schema()).validate(trace)
    assert "2 stages of a pipeline, those of ranks 0, 2, are one program" in said
    assert trace["world"] == 2
    assert sorted((axis["size"]) for axis in trace["meshes"][0]["axes"]) == [1, 2]
    names = [op["op"] for op in trace["ops"]]
    assert "send" not in names and "recv" not in names
    assert names.count("wait") == 2 and names.count("all_reduce_") == 4
    params = [one["name"] for one in trace["params"] if one["role"] == "param"]
    assert sorted(params) == [f"stages.{n}.{of}" for n in range(2) for of in ("bias", "weight")]


def test_a_number_of_groups_is_no_group_of_ranks(tmp_path):
    normed = "model = torch.nn.Sequential(torch.nn.GroupNorm(2, 4), torch.nn.Linear(4, 4))"
    code = _BEGIN.replace("model = torch.nn.Linear(4, 4)", normed)
    trace, said = recorded(tmp_path, code + _STAGES + _AVERAGE + _END, "--world", 4)
    assert "2 stages of a pipeline, those of ranks 0, 2, are one program" in said
    assert sum("group_norm" in op["op"] for op in trace["ops"]) > 1


@pytest.mark.skipif(judged.checker() is None, reason="SPMDLINT names no checker")
@pytest.mark.parametrize("missing", [False, True])
def test_the_types_of_a_stage_are_carried_to_the_next(missing, tmp_path):
    average = "" if missing else _AVERAGE
    recorded(tmp_path, _BEGIN + _STAGES + average + _CLIP + _END, "--world", 4)
    trace = tmp_path / "step.spmd.json"
    found = {report["name"] for report in judged.reports(trace)}
    assert found == ({"invariant-mixed", "copies-drift"} if missing else set())
    if not missing:
        words = [os.environ["SPMDLINT"], "check", str(trace)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert "gradients of 4 of 4 parameters proved" in done.stderr + done.stdout


@pytest.mark.skipif(judged.checker() is None, reason="SPMDLINT names no checker")
def test_gradients_are_shared_by_the_ranks_of_stages_too(tmp_path):
    """Each stage has its gradients alone: divided by the number of all ranks they are too small."""
    average = _AVERAGE.replace("/= dp", "/= dist.get_world_size()")
    recorded(tmp_path, _BEGIN + _STAGES + average + _END, "--world", 4)
    found = {report["name"] for report in judged.reports(tmp_path / "step.spmd.json")}
    assert found == {"scale-mismatch"}


def _trace(ops: list[dict], groups: dict | None = None) -> dict:
    axes = [{"name": "pp", "size": 2, "stride": 1}]
    locs = [{"file": 0, "line": 1}]
    return {
        "format": "spmd-trace",
        "version": "1.0",
        "producer": {},
        "mode": "local",
        "phase": "step",
        "meshes": [{"id": "main", "axes": axes}],
        "groups": groups or {},
        "files": [{"path": "a.py"}],
        "locs": locs,
        "scopes": [],
        "contexts": [{"mesh": "main", "local": ["pp"]}],
        "params": [
            {
                "id": "%0",
                "dtype": "f32",
                "shape": [2],
                "type": {"pp": "V"},
                "role": "input",
                "name": "x",
            }
        ],
        "outputs": [],
        "ops": ops,
    }


def _value(number: int) -> dict:
    return {"id": f"%{number}", "dtype": "f32", "shape": [2]}


def _send(number: int, peer: int) -> dict:
    return {"op": "send", "in": [f"%{number}"], "attrs": {"peer": peer, "tag": 0}, "loc": 0}


def _receive(number: int, peer: int) -> dict:
    return {"op": "recv", "attrs": {"peer": peer, "tag": 0}, "out": [_value(number)], "loc": 0}


def _use(number: int, of: int) -> dict:
    return {"op": "aten.neg.default", "in": [f"%{of}"], "out": [_value(number)], "loc": 0}


def _join(tmp_path, *programs) -> dict:
    traces = {}
    for rank, program in enumerate(programs):
        traces[rank] = tmp_path / f"{rank}.json"
        traces[rank].write_text(json.dumps(program))
    line = stages.Line([["pp", 2, 1]], [0, 1])
    stages.join(traces, line, {0: [], 1: []}, tmp_path / "joined.json")
    return json.loads((tmp_path / "joined.json").read_text())


def test_what_is_asked_for_before_it_is_sent_comes_when_it_is_used(tmp_path):
    """Both ranks post a receive first, as `batch_isend_irecv` does."""
    one = _trace([_receive(1, 1), _send(0, 1), _use(2, 1)])
    other = _trace([_receive(1, 0), _send(0, 0), _use(2, 1)])
    joined = _join(tmp_path, one, other)
    assert [op["op"] for op in joined["ops"]] == ["wait", "aten.neg.default"] * 2
    assert [op["in"] for op in joined["ops"]] == [["%0"], ["%2"], ["%1"], ["%4"]]


def test_stages_that_wait_for_each_other_are_not_joined(tmp_path):
    one = _trace([_receive(1, 1), _use(2, 1), _send(2, 1)])
    other = _trace([_receive(1, 0), _use(2, 1), _send(2, 0)])
    with pytest.raises(stages.Apart, match="wait for each other"):
        _join(tmp_path, one, other)


@pytest.mark.parametrize(
    ("word", "made"),
    [
        ("sum", ["aten.add.Tensor"]),
        ("avg", ["aten.add.Tensor", "aten.div.Tensor"]),
        ("max", ["aten.maximum.default"]),
    ],
)
def test_a_collective_over_stages_is_arithmetic(word, made, tmp_path):
    groups = {"both": {"mesh": "main", "axes": ["pp"]}}
    out = _value(1) | {"alias_of": "%0"}
    reduce = {
        "op": "all_reduce_",
        "in": ["%0"],
        "attrs": {"group": "both", "op": word},
        "out": [out],
        "mut": [0],
        "loc": 0,
    }
    joined = _join(tmp_path, _trace([reduce], groups), _trace([reduce], groups))
    assert [op["op"] for op in joined["ops"]] == [*made, "aten.copy_.default", "aten.copy_.default"]


def test_a_reduction_that_is_no_arithmetic_is_not_joined(tmp_path):
    groups = {"both": {"ranks": [0, 1]}}
    reduce = {
        "op": "all_reduce",
        "in": ["%0"],
        "attrs": {"group": "both", "op": "xor"},
        "out": [_value(1)],
        "loc": 0,
    }
    with pytest.raises(stages.Apart, match="reduction by xor"):
        _join(tmp_path, _trace([reduce], groups), _trace([reduce], groups))


def test_ranks_that_lie_along_no_axis_are_not_joined():
    with pytest.raises(stages.Apart, match="do not lie along axes"):
        stages.Line([["pp", 4, 1]], [0, 3])


_TWO_LISTS = (
    _BEGIN
    + """
    for _ in range(2):
        if stage == 0:
            dist.send(batch, rank + dp)
        else:
            got = torch.empty(len(batch), 4)
            dist.recv(got, rank - dp)
    model(batch).square().mean().backward()
    if step == 1 and stage == 0:
        dist.send(batch, rank + dp)
    optimizer.step()
    if step == 1 and stage == 1:
        dist.recv(got, rank - dp)
"""
)


def test_messages_over_the_end_of_the_step_leave_the_program_of_one_rank(tmp_path):
    trace, said = recorded(tmp_path, _TWO_LISTS, "--world", 4)
    assert "not all that ranks send in this step is received in it" in said
    assert "what is recorded is the program of rank 0" in said and trace["world"] == 4
