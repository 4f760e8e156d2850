"""The recorder on small programs without a framework: operands, writes, views, numbers."""

import json

import pytest
import torch

import spmd_trace.torch
from spmd_trace.torch import Axis, Mesh, Recorder, composites
from spmd_trace.torch.frameworks import cpu
from traces import stale_uses


def record(program, *inputs) -> dict:
    recorder = Recorder(Mesh("m", [Axis("tp", 2, 1)]))
    for position, tensor in enumerate(inputs):
        recorder.declare(tensor, "input", f"x{position}", type={"tp": "R"})
    with recorder.recording():
        program(recorder, *inputs)
    return json.loads(spmd_trace.torch.dumps(recorder.program))


def ops_named(trace: dict, name: str) -> list[dict]:
    return [op for op in trace["ops"] if op["op"] == name]


def test_operands_and_attributes():
    trace = record(lambda r, x: x.transpose(0, 1).sum(0, keepdim=True).mul(3.0), torch.ones(2, 3))
    view, total, product = trace["ops"]
    assert view["attrs"] == {"dim0": 0, "dim1": 1} and view["out"][0]["alias_of"] == "%0"
    assert total["attrs"] == {"dim": [0], "keepdim": True}
    assert product["in"] == ["%2", 3.0]


def test_absent_operands_and_non_finite_numbers():
    def program(recorder, x):
        torch.nn.functional.layer_norm(x, [3], None, torch.ones(3))
        x.masked_fill(x > 0, float("-inf"))

    trace = record(program, torch.ones(2, 3))
    assert ops_named(trace, "aten.native_layer_norm.default")[0]["in"] == ["%0", None, "%1"]
    fill = ops_named(trace, "aten.masked_fill.Scalar")[0]
    assert fill["attrs"] == {"value": {"num": "-inf"}}


def test_the_number_of_a_list_operation_is_an_operand():
    trace = record(lambda r, x: torch._foreach_mul([x], 0.5), torch.ones(3))
    assert trace["ops"][0]["in"] == [["%0"], 0.5] and "attrs" not in trace["ops"][0]


def test_a_slice_to_the_end_names_no_end():
    trace = record(lambda r, x: x[1:].mul(2), torch.ones(3))
    assert ops_named(trace, "aten.slice.Tensor")[0]["attrs"] == {"start": 1}


def test_a_write_makes_a_new_value():
    trace = record(lambda r, x: x.add_(1).mul(2), torch.ones(3))
    write, use = trace["ops"]
    assert write["mut"] == [0] and write["out"][0]["alias_of"] == "%0"
    assert use["in"][0] == write["out"][0]["id"]


def test_views_are_derived_again_after_a_write():
    def program(recorder, x):
        view = x[0]
        x.add_(1)
        view.mul(2)

    trace = record(program, torch.ones(2, 3))
    (alias,) = ops_named(trace, "alias")
    assert alias["in"] == ["%2", "%1"] and alias["out"][0]["alias_of"] == "%2"
    assert trace["ops"][-1]["in"][0] == alias["out"][0]["id"]
    assert stale_uses(trace) == []


def test_saved_views_are_recorded_as_what_they_are():
    weight = torch.ones(5, 3, requires_grad=True)

    def program(recorder, x):
        with composites.Composites(recorder):
            loss = torch.nn.functional.linear(x, weight).sum()
        recorder.backward(loss)

    trace = record(program, torch.ones(2, 4, 3, requires_grad=True))
    assert ops_named(trace, "aten.linear.default") and not ops_named(trace, "alias")
    views = {op["op"]: op for op in trace["ops"] if op["op"].startswith(("aten.view", "aten.perm"))}
    assert views["aten.permute.default"]["attrs"] == {"dims": [1, 0]}
    assert [8, 3] in [op["out"][0]["shape"] for op in trace["ops"]]


def test_a_write_to_another_part_keeps_a_view():
    def program(recorder, x):
        first, second = x[0], x[1]
        first.add_(1)
        second.mul(2)

    assert not ops_named(record(program, torch.ones(2, 3)), "alias")


def test_output_arguments():
    def program(recorder, x):
        torch.exp(x, out=x)
        x.neg()

    trace = record(program, torch.ones(3))
    assert trace["ops"][0]["kw"] == {"out": "%0"}
    assert trace["ops"][0]["out"][0]["alias_of"] == "%0"
    assert trace["ops"][1]["in"] == ["%1"]


def test_packed_buffers_are_written_part_by_part():
    flat = torch.ones(6)
    parts = [flat[:2].view(2), flat[2:].view(2, 2)]

    def program(recorder):
        recorder.declare_scratch(flat)
        recorder.declare_packed(flat, parts)
        flat.zero_()
        parts[1].add_(1)

    trace = record(program)
    shapes = [op["out"][0]["shape"] for op in ops_named(trace, "aten.zero_.default")]
    assert shapes == [[2], [2, 2]]


def test_host_numbers_keep_their_value():
    def program(recorder, x):
        scale = 1.5 / (x.norm().item() + 0.1)
        x.mul(scale)

    trace = record(program, torch.ones(3))
    divide = ops_named(trace, "div")[0]
    assert divide["in"][0] == 1.5
    assert trace["ops"][-1]["in"] == ["%0", divide["out"][0]["id"]]


def test_backward_is_paired_with_forward():
    def program(recorder, x):
        recorder.backward(x.exp().sum())

    trace = record(program, torch.ones(3, requires_grad=True))
    backward = [op for op in trace["ops"] if op.get("phase") == "bwd"]
    assert backward and all("bwd_of" in op for op in backward)
    exp, total = (
        ops_named(trace, name)[0]["out"][0]["id"]
        for name in ("aten.exp.default", "aten.sum.default")
    )
    gradients = {v["grad_of"] for op in backward for v in op["out"] if "grad_of" in v}
    assert {exp, total, "%0"} <= gradients


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


doubled = Doubled.apply  # taken before anything is recorded


def test_a_detached_weight_that_is_trained_again_says_so():
    def program(recorder, x):
        weight = x.detach().requires_grad_()
        (weight * 2).sum().backward()

    trace = record(program, torch.ones(3, requires_grad=True))
    assert ops_named(trace, "aten.detach.default")[0]["out"][0]["requires_grad"]


def test_a_function_is_known_by_any_name_of_its_call():
    def program(recorder, x):
        recorder.backward(doubled(x).sum())

    trace = record(program, torch.ones(3, requires_grad=True))
    forward, back = ops_named(trace, "aten.mul.Tensor")
    assert back["bwd_of"] == forward["out"][0]["id"] and back["out"][0]["grad_of"] == "%0"


@pytest.fixture
def two_ranks():
    with cpu.fake_ranks(0, 2):
        yield


def test_collectives_leave_kinds_open(two_ranks):
    def program(recorder, x):
        torch.distributed.all_reduce(x, op=torch.distributed.ReduceOp.MAX)
        whole = torch.empty(4)
        torch.distributed.all_gather_into_tensor(whole, x)
        torch.distributed.all_to_all_single(x, whole[:2])

    trace = record(program, torch.ones(2))
    group = {"group": "default_pg"}
    assert trace["groups"] == {"default_pg": {"mesh": "m", "axes": ["tp"]}}
    reduce, _, gather, _, exchange = trace["ops"]
    assert (reduce["op"], reduce["mut"]) == ("all_reduce_", [0])
    assert reduce["attrs"] == group | {"op": "max"}
    assert (gather["op"], gather["attrs"]) == ("all_gather", group | {"dim": 0})
    assert gather["in"] == ["%1"] and gather["kw"] == {"out": "%2"}
    assert exchange["attrs"] == group | {"split_dim": 0, "concat_dim": 0}


def test_functional_collectives_are_waited_for_at_once(two_ranks):
    from torch.distributed import _functional_collectives as functional

    def program(recorder, x):
        group = torch.distributed.group.WORLD
        functional.all_reduce(x, "avg", group).mul(2)

    trace = record(program, torch.ones(2))
    reduce, use = trace["ops"]
    assert (reduce["op"], reduce["attrs"]["op"], reduce["in"]) == ("all_reduce", "avg", ["%0"])
    assert use["in"] == ["%1", 2]


def test_places_name_no_folder():
    trace = record(lambda r, x: x.exp(), torch.ones(3))
    location = trace["locs"][trace["ops"][0]["loc"]]
    path = trace["files"][location["file"]]["path"]
    assert path.endswith("test_core.py") and not path.startswith("/")
    assert "caller" in location and len(trace["locs"]) == 2
    assert location["func"].endswith("<lambda>") and location["col"] > 1


def test_two_recordings_at_once_are_refused():
    with pytest.raises(RuntimeError, match="another recording"):
        record(lambda r: record(lambda r: None))


def test_a_loss_from_outside_is_refused():
    loss = torch.ones(3, requires_grad=True).sum()
    with pytest.raises(ValueError, match="not computed inside the recording"):
        record(lambda r: r.backward(loss))


def test_errors_name_the_place():
    with pytest.raises(KeyError, match="no axis pp"):
        Mesh("m", [Axis("tp", 2, 1)]).axis("pp")


def test_a_buffer_written_through_views_is_what_was_written():
    flat = torch.zeros(8)
    first, second = flat[0:2], flat[4:8].view(2, 2)

    def program(recorder, x):
        first.copy_(x[0])
        second.copy_(x)
        second[0].add_(x[1])
        flat.mul_(2.0)
        second.add_(x)
        flat.sum()

    trace = record(program, torch.ones(2, 2))
    (whole,) = ops_named(trace, "aten.cat.default")
    made = {out["id"]: op for op in trace["ops"] for out in op["out"]}
    given = {one["id"]: one for one in trace["params"]}
    one, between, other = whole["in"][0]
    assert made[one]["op"] == "aten.copy_.default"
    assert given[between]["shape"] == [2]  # what was there before
    # The part that was written again in a part of it, as one run.
    assert made[other]["op"] == "aten.view.default"
    assert made[made[other]["in"][0]]["op"] == "alias"
    (product,) = ops_named(trace, "aten.mul_.Tensor")
    assert product["in"][0] == whole["out"][0]["id"]
    # What is written afterwards is a part of the product, and the sum is of both.
    (total,) = ops_named(trace, "aten.sum.default")
    assert made[total["in"][0]]["op"] == "alias"
    assert not stale_uses(trace)
