"""Mixtures of experts: expert axes, uneven exchanges, the auxiliary loss."""

import json

import pytest

import of_one_torch  # noqa: F401  what is kept is of one version
import spmd_trace.torch
from spmd_trace.torch.programs import megatron_gpt
from traces import BUNDLED


def parameter(trace: dict, suffix: str) -> dict:
    found = [p for p in trace["params"] if p["role"] == "param" and p["name"].endswith(suffix)]
    return found[0]


def calls(trace: dict, name: str, phase: str) -> list[dict]:
    return [o for o in trace["ops"] if o["op"] == name and o.get("phase", "fwd") == phase]


def test_the_data_axis_is_made_of_replicas_and_experts(dropless, capacity):
    def sizes(trace: dict) -> list[tuple]:
        return [(axis["name"], axis["size"]) for axis in trace["meshes"][0]["axes"][:3]]

    assert sizes(dropless) == [("edp", 2), ("ep", 4), ("tp", 2)]
    assert sizes(capacity) == [("edp", 2), ("ep", 2), ("tp", 2)]
    axes = {key: group["axes"] for key, group in dropless["groups"].items()}
    assert dropless["meshes"][0]["axes"][3] == {"name": "dp", "of": ["edp", "ep"]}
    assert axes["DATA_PARALLEL_GROUP"] == ["dp"]
    assert axes["EXPERT_MODEL_PARALLEL_GROUP"] == ["ep"]
    assert axes["EXPERT_DATA_PARALLEL_GROUP"] == ["edp"]
    recorded = calls(dropless, "total_norm", "opt")
    norms = [op["attrs"].get("axis") for op in recorded if "attrs" in op]
    assert norms == [["tp"], ["ep", "tp"]]


def test_expert_weights_differ_along_ep(dropless):
    expert = parameter(dropless, "experts.local_experts.0.linear_fc1.weight")
    assert expert["type"] == {"edp": "R", "ep": "V", "tp": "V"}
    assert expert["grad"]["type"] == {"edp": "P", "ep": "V", "tp": "V"}
    assert expert["x_attributes"]["allreduce"] is False
    router = parameter(dropless, "router.weight")
    assert router["type"] == {"edp": "R", "ep": "R", "tp": "R"}
    assert router["grad"]["type"] == {"edp": "P", "ep": "P", "tp": "P"}


def test_uneven_exchanges_name_the_tensors_of_their_sizes(dropless):
    made = {v["id"]: v for op in dropless["ops"] for v in op.get("out", [])}
    for phase, other in (("fwd", "bwd"), ("bwd", "fwd")):
        exchanges = calls(dropless, "all_to_all", phase)
        assert len(exchanges) == 6  # tokens, their probabilities, and back, in two layers
        for op in exchanges:
            assert {made[op["kw"][key]]["dtype"] for key in ("in_splits", "out_splits")} == {"i64"}
        pairs = {(op["kw"]["in_splits"], op["kw"]["out_splits"]) for op in exchanges}
        there = {
            (op["kw"]["out_splits"], op["kw"]["in_splits"])
            for op in calls(dropless, "all_to_all", other)
        }
        assert pairs == there
    gathers = [op for op in calls(dropless, "all_gather", "fwd") if "splits" in op.get("kw", {})]
    assert len(gathers) == 4 and {op["attrs"]["dst"] for op in gathers} == {"R"}


def test_numbers_of_tokens_are_symbols(dropless, capacity):
    assert sorted(dropless["symbols"]) == ["n0", "n1"]  # of the two layers
    arrived = [op["out"][0]["shape"] for op in calls(dropless, "all_to_all", "fwd")]
    assert arrived == [["n0", 64], ["n0"], [32, 64], ["n1", 64], ["n1"], [32, 64]]
    assert "symbols" not in capacity


def test_a_capacity_makes_even_exchanges(capacity):
    exchanges = calls(capacity, "all_to_all", "fwd")
    assert len(exchanges) == 6
    assert not any("in_splits" in op.get("kw", {}) for op in exchanges)


def test_the_auxiliary_loss_is_logged(trace_of_experts):
    (logged,) = [o for o in trace_of_experts["outputs"] if o.get("name") == "load_balancing_loss"]
    assert set(logged["type"].values()) == {"R"}
    scopes = trace_of_experts["scopes"]
    inside = [op for op in trace_of_experts["ops"] if scopes[op.get("scope", 0)] == "log"]
    reductions = [op["attrs"]["op"] for op in inside if op["op"] == "all_reduce_"]
    assert reductions == ["sum", "avg"]


@pytest.fixture(params=["dropless.spmd.json", "capacity.spmd.json"])
def trace_of_experts(request, moe_texts) -> dict:
    return json.loads(moe_texts[request.param])


def test_nothing_comes_from_outside(trace_of_experts):
    assert not [p for p in trace_of_experts["params"] if p["role"] == "const"]


def test_planted_mistakes_change_the_program(moe_texts):
    router = json.loads(moe_texts["broken_router.spmd.json"])
    assert parameter(router, "router.weight")["type"]["tp"] == "I"
    gather = json.loads(moe_texts["broken_gather.spmd.json"])
    found = [op for op in calls(gather, "all_gather", "fwd") if op["attrs"].get("dst") == "I"]
    assert len(found) == 4


@pytest.mark.parametrize("bug", ["expert-sync", "expert-norm"])
def test_other_mistakes_reduce_over_other_ranks(bug, capacity):
    config = megatron_gpt.with_capacity()
    broken = json.loads(spmd_trace.torch.dumps(megatron_gpt.record(config, bug)))

    def sums(trace: dict) -> list:
        reduced = [op["attrs"].get("group") for op in calls(trace, "all_reduce_", "opt")]
        return reduced + [op.get("attrs") for op in calls(trace, "total_norm", "opt")]

    assert sums(capacity) != sums(broken)


def test_several_experts_on_a_rank_need_a_capacity():
    config = megatron_gpt.with_capacity(capacity=False)
    with pytest.raises(NotImplementedError, match="without a capacity"):
        megatron_gpt.record(config)


def test_bundled_traces_are_current(moe_texts):
    for name, text in moe_texts.items():
        assert (BUNDLED / "megatron_moe" / name).read_text() == text, f"record {name} again"
