"""Programs that use torch's own data parallelism: what its hooks do is in the trace."""

import contextlib
import json

import jsonschema
import pytest
import torch
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import judged
import spmd_trace.torch
from spmd_trace.torch import Axis, Mesh, Recorder, reinterpret
from spmd_trace.torch.frameworks import cpu, ddp, dtensors, fsdp
from traces import linted, schema

_RANKS = 4


def _layers() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))


def _recorder(tokens: torch.Tensor) -> Recorder:
    recorder = Recorder(Mesh("main", [Axis("dp", _RANKS, 1, "data")]))
    recorder.declare(tokens, "input", "tokens", type={"dp": "V"}, spec=["dp", None])
    return recorder


def _step(model, tokens, optimizer, recorder=None) -> None:
    loss = model(tokens).square().mean()
    if recorder is None:
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return
    loss = reinterpret(loss, "dp", src="V", dst="P")
    recorder.backward(loss)
    with recorder.section("optimizer", "opt"):
        optimizer.step()
    recorder.output(loss, "loss")


def replicas(forgotten: bool = False, thawed: bool = False) -> dict:
    """A step of a model under DistributedDataParallel, or one that forgets to leave no_sync;
    `thawed`: its first layer was frozen when it was wrapped.
    """
    with cpu.fake_ranks(0, _RANKS):
        layers, tokens = _layers(), torch.randn(6, 8)
        layers[0].requires_grad_(not thawed)
        model = DistributedDataParallel(layers)
        ddp.built(model)
        layers[0].requires_grad_(True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
        _step(model, tokens, optimizer)
        recorder = _recorder(tokens)
        declared = ddp.declare(recorder, model)
        alone = model.no_sync() if forgotten else contextlib.nullcontext()
        with ddp.recorded(recorder, model), recorder.recording(model), alone:
            _step(model, tokens, optimizer, recorder)
        for parameter, value in declared.items():
            recorder.output(parameter, "state", value, type={"dp": "R"})
        return json.loads(spmd_trace.torch.dumps(recorder.program))


def shards() -> dict:
    """A step of a model under FSDP2."""
    with cpu.fake_ranks(0, _RANKS):
        grid = torch.distributed.init_device_mesh("cpu", (_RANKS,), mesh_dim_names=("dp",))
        model, tokens = fully_shard(_layers(), mesh=grid), torch.randn(6, 8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
        _step(model, tokens, optimizer)
        recorder = _recorder(tokens)
        fsdp.declare(recorder, model)
        with fsdp.recorded(recorder, fsdp.along_groups(recorder)), recorder.recording(model):
            _step(model, tokens, optimizer, recorder)
        return json.loads(spmd_trace.torch.dumps(recorder.program))


def names(trace: dict) -> list[str]:
    return [op["op"] for op in trace["ops"]]


def test_the_reducer_is_one_average_of_each_gradient():
    trace = replicas()
    jsonschema.Draft202012Validator(schema()).validate(trace)
    averages = [op for op in trace["ops"] if op["op"] == "all_reduce_"]
    assert [op["attrs"]["op"] for op in averages] == ["avg"] * 4
    assert names(trace).count("reinterpret_") == 4 and "broadcast_" not in names(trace)
    weights = [p for p in trace["params"] if p["role"] == "param"]
    assert {p["grad"]["type"]["dp"] for p in weights} == {"P"}
    assert weights[0]["x_reductions"][0]["origin"] == "DistributedDataParallel"


def _hints(trace: dict) -> set[tuple[str, str]]:
    weights = [one for one in trace["params"] if one["role"] == "param"]
    hints = [hint for one in weights for hint in one["grad"].get("hints", [])]
    return {(hint["axis"], hint["text"]) for hint in hints}


def test_gradients_that_are_not_averaged_say_what_would_average_them():
    assert not _hints(replicas())
    ((axis, text),) = _hints(replicas(forgotten=True))
    assert axis == "dp" and "outside of no_sync()" in text


def test_the_call_of_the_module_inside_is_named():
    with cpu.fake_ranks(0, _RANKS):
        model, tokens = DistributedDataParallel(_layers()), torch.randn(6, 8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
        recorder = _recorder(tokens)
        declared = ddp.declare(recorder, model)
        with ddp.recorded(recorder, model), recorder.recording(model):
            _step(model.module, tokens, optimizer, recorder)
        for parameter, value in declared.items():
            recorder.output(parameter, "state", value, type={"dp": "R"})
        trace = json.loads(spmd_trace.torch.dumps(recorder.program))
    jsonschema.Draft202012Validator(schema()).validate(trace)
    line = _step.__code__.co_firstlineno + 1
    ((axis, text),) = _hints(trace)
    assert axis == "dp" and f"test_replicas.py:{line} calls the module inside" in text


def test_what_was_frozen_when_the_model_was_wrapped_is_not_reduced():
    assert names(replicas(thawed=True)).count("all_reduce_") == 2


def test_a_backward_that_reaches_no_parameter_reduces_none():
    with cpu.fake_ranks(0, _RANKS):
        model, tokens = DistributedDataParallel(_layers()), torch.randn(6, 8)
        _step(model, tokens, torch.optim.SGD(model.parameters(), lr=0.1, foreach=False))
        model(tokens).sum().backward()  # leaves gradients of an earlier step
        recorder, other = _recorder(tokens), torch.nn.Linear(8, 1)
        ddp.declare(recorder, model)
        for name, parameter in other.named_parameters():
            recorder.declare(parameter, "param", name, type={"dp": "R"})
        with ddp.recorded(recorder, model), recorder.recording(model):
            model(tokens)
            recorder.backward(reinterpret(other(tokens).mean(), "dp", src="V", dst="P"))
        assert "all_reduce_" not in names(json.loads(spmd_trace.torch.dumps(recorder.program)))


def test_without_synchronisation_nothing_is_reduced():
    assert "all_reduce_" not in names(replicas(forgotten=True))


def hooked(hook) -> dict:
    """A step whose gradients a communication hook reduces."""
    with cpu.fake_ranks(0, _RANKS):
        model, tokens = DistributedDataParallel(_layers()), torch.randn(6, 8)
        model.register_comm_hook(torch.distributed.group.WORLD, hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
        recorder = _recorder(tokens)
        ddp.declare(recorder, model)
        with ddp.recorded(recorder, model), recorder.recording(model):
            _step(model, tokens, optimizer, recorder)
        return json.loads(spmd_trace.torch.dumps(recorder.program))


def test_a_hook_reduces_one_gradient_at_a_time():
    def mean(group, bucket):
        small = bucket.buffer().half() / group.size()
        future = torch.distributed.all_reduce(small, group=group, async_op=True).get_future()
        return future.then(lambda done: done.value()[0].float())

    trace = hooked(mean)
    jsonschema.Draft202012Validator(schema()).validate(trace)
    sums = [op for op in trace["ops"] if op["op"] == "all_reduce_"]
    assert [op["attrs"]["op"] for op in sums] == ["sum"] * 4
    assert {op["out"][0]["dtype"] for op in sums} == {"f16"}
    assert "x_reductions" not in trace["params"][1]


def test_a_hook_that_knows_its_buckets_is_refused():
    def knows(group, bucket):
        raise RuntimeError("sizes differ")

    with pytest.raises(NotImplementedError, match="hook knows does not take gradients one by one"):
        hooked(knows)


def test_shards_are_gathered_and_their_gradients_scattered():
    trace = shards()
    jsonschema.Draft202012Validator(schema()).validate(trace)
    assert names(trace).count("all_gather") == names(trace).count("reduce_scatter") == 1
    (scatter,) = [op for op in trace["ops"] if op["op"] == "reduce_scatter"]
    assert scatter["attrs"] == {"axis": "dp", "op": "avg", "dst": "S(0)"}
    weights = [p for p in trace["params"] if p["role"] == "param"]
    assert weights[0]["spec"] == ["dp", None] and weights[0]["gshape"] == [16, 8]
    assert weights[0]["grad"]["type"] == {"dp": "V"} and weights[0]["x_placements"] == ["S(0)"]


def test_a_parameter_of_unfinished_sums_is_refused():
    with cpu.fake_ranks(0, _RANKS):
        grid = torch.distributed.init_device_mesh("cpu", (_RANKS,))
        placed = torch.distributed.tensor.Partial()
        weight = torch.distributed.tensor.DTensor.from_local(torch.ones(2), grid, [placed])
        with pytest.raises(NotImplementedError, match="placed as P"):
            dtensors.claims(_recorder(torch.ones(1, 8)), weight)


@pytest.mark.skipif(judged.checker() is None, reason="SPMDLINT does not name a checker")
def test_the_checker_follows_the_hooks(tmp_path):
    def found(trace: dict) -> list[str]:
        path = tmp_path / "step.spmd.json"
        path.write_text(json.dumps(trace))
        return [report["name"] for report in judged.reports(path)]

    assert found(replicas()) == [] and found(shards()) == []
    assert set(found(replicas(forgotten=True))) == {"unreduced-gradient"}


class _TrainsInside(torch.nn.Module):
    """Goes backward in its forward, before its wrapper tells the reducer."""

    def __init__(self):
        super().__init__()
        self.layers, self.run = _layers(), None

    def forward(self, tokens):
        return self.run(self.layers(tokens).square().mean())


@pytest.mark.parametrize(
    "place, averaged",
    [("nowhere", 4), ("both", 0), ("forward", 0), ("backward", 4), ("inside", 0), ("prepared", 4)],
)
def test_gradients_are_averaged_where_the_reducer_waits_for_them(place, averaged):
    """It is prepared at the end of a forward outside of `no_sync`, or by a package around it."""
    with cpu.fake_ranks(0, _RANKS):
        module = _TrainsInside()
        model, tokens = DistributedDataParallel(module), torch.randn(6, 8)
        recorder = _recorder(tokens)
        ddp.declare(recorder, model)

        def alone(*locations):
            return model.no_sync() if place in locations else contextlib.nullcontext()

        def backward(loss):
            if place == "prepared":
                model.reducer.prepare_for_backward([])
            with alone("backward", "both"):
                recorder.backward(reinterpret(loss, "dp", src="V", dst="P"))
            return loss

        inside = place in ("inside", "prepared")
        module.run = backward if inside else lambda loss: loss
        with ddp.recorded(recorder, model), recorder.recording(model):
            with alone("forward", "both"):
                loss = model(tokens)
            if not inside:
                backward(loss)
        assert [op.name for op in recorder.program.ops].count("all_reduce_") == averaged


# The module inside of the wrapper is called, and the optimizer reads each gradient twice.
_BESIDE = """
import torch, torch.distributed as dist, torch.nn as nn
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Linear(6, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
draw = torch.Generator().manual_seed(dist.get_rank())
for step in range(3):
    optimizer.zero_grad()
    model.module(torch.randn(5, 6, generator=draw)).pow(2).mean().backward()
    optimizer.step()
"""


def test_a_gradient_that_is_not_summed_is_one_finding(tmp_path):
    found = json.loads(linted(tmp_path, _BESIDE).stdout)["findings"]
    assert {one["name"] for one in found} == {"copies-drift", "unreduced-gradient"}
