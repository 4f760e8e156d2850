"""The recorded training step of the real framework, as a document and as a program."""

import jsonschema
import pytest

import of_one_torch  # noqa: F401  what is kept is of one version
import spmd_trace.torch
from spmd_trace.torch.programs import megatron_gpt
from traces import BUNDLED, leaves, operands, schema, stale_uses


def test_traces_fit_the_schema(trace):
    jsonschema.Draft202012Validator(schema()).validate(trace)


def test_values_are_defined_once_and_before_use(trace):
    defined = {value["id"] for value in trace["params"]}
    assert len(defined) == len(trace["params"])
    for op in trace["ops"]:
        links = [v[k] for v in op.get("out", []) for k in ("alias_of", "grad_of") if k in v]
        used = [*operands(op), *links, *([op["bwd_of"]] if "bwd_of" in op else [])]
        assert set(used) <= defined, op
        for value in op.get("out", []):
            assert value["id"] not in defined
            defined.add(value["id"])
    assert {o["value"] for o in trace["outputs"]} <= defined
    assert trace["op_count"] == len(trace["ops"])


def test_tables_are_within_bounds(trace):
    for op in trace["ops"]:
        assert op.get("loc", 0) < len(trace["locs"]) and op.get("scope", 0) < len(trace["scopes"])
    for index, loc in enumerate(trace["locs"]):
        assert loc.get("caller", -1) < index and loc["file"] < len(trace["files"])
    assert not [file for file in trace["files"] if file["path"].startswith("/")]


def test_writes_follow_the_rules_of_mutation(trace):
    for op in trace["ops"]:
        written = leaves([op["in"][i] for i in op.get("mut", [])])
        results = [value.get("alias_of") for value in op.get("out", [])]
        assert results[: len(written)] == written, op
        views = [value["alias_of"] for value in op.get("out", []) if "alias_of" in value]
        assert set(views) <= set(operands(op)), op
        if "out" in op.get("kw", {}):
            assert op["out"][0]["alias_of"] == op["kw"]["out"]
    assert stale_uses(trace) == []


def test_backward_is_paired(trace):
    backward = [op for op in trace["ops"] if op.get("phase") == "bwd"]
    paired = [op for op in backward if "bwd_of" in op]
    assert len(paired) >= 0.85 * len(backward) > 200
    shapes = {v["id"]: v["shape"] for v in trace["params"]}
    shapes |= {v["id"]: v["shape"] for op in trace["ops"] for v in op.get("out", [])}
    gradients = [v for op in backward for v in op["out"] if "grad_of" in v]
    assert len(gradients) > 80
    assert all(v["shape"] == shapes[v["grad_of"]] for v in gradients)


def test_groups_are_axes(dense):
    assert dense["meshes"][0]["axes"] == [
        {"name": "dp", "size": 2, "stride": 4, "role": "data"},
        {"name": "tp", "size": 4, "stride": 1, "role": "tensor"},
    ]
    axes = {key: group["axes"] for key, group in dense["groups"].items()}
    assert axes["TENSOR_MODEL_PARALLEL_GROUP"] == ["tp"]
    assert axes["DATA_PARALLEL_GROUP_WITH_CP"] == ["dp"]


def test_every_parameter_has_a_contract_and_a_new_state(trace):
    parameters = {p["id"]: p for p in trace["params"] if p["role"] == "param"}
    assert parameters
    for role in ("grad", "state"):
        assert set(parameters) <= {o.get("of") for o in trace["outputs"] if o["role"] == role}
    gradients = {v.get("grad_of") for op in trace["ops"] for v in op.get("out", [])}
    assert set(parameters) <= gradients


def kinds(trace: dict) -> dict[str, tuple]:
    found = {}
    for p in trace["params"]:
        if p["role"] == "param":
            found[p["name"]] = (p["type"]["tp"], p.get("spec"), p["grad"]["type"]["tp"])
    return found


def test_parameter_types(tp, sp):
    plain, sequence = kinds(tp), kinds(sp)
    layer = "decoder.layers.1."
    assert plain["embedding.word_embeddings.weight"] == ("V", ["tp", None], "V")
    assert plain[layer + "mlp.linear_fc2.weight"] == ("V", [None, "tp"], "V")
    assert plain[layer + "mlp.linear_fc2.bias"] == ("I", None, "I")
    assert plain[layer + "input_layernorm.weight"] == ("I", None, "I")
    assert sequence[layer + "mlp.linear_fc2.bias"] == ("R", None, "P")
    assert sequence[layer + "input_layernorm.weight"] == ("R", None, "P")


def rows(trace: dict, phase: str, scope: str) -> list[tuple]:
    """The collectives and conversions of one module, as (op, src, dst)."""
    found = []
    for op in trace["ops"]:
        inside = trace["scopes"][op.get("scope", 0)] == scope
        if op.get("phase", "fwd") == phase and inside and not op["op"].startswith("aten."):
            if op["op"] != "alias":
                found.append((op["op"], op["attrs"].get("src"), op["attrs"].get("dst")))
    return found


def test_mapping_functions_are_typed_both_ways(tp, sp):
    up, down = "decoder.layers.0.mlp.linear_fc1", "decoder.layers.0.mlp.linear_fc2"
    assert rows(tp, "fwd", up) == [("convert", "I", "R")]
    assert rows(tp, "bwd", up) == [("all_reduce_", None, "I")]
    assert rows(tp, "fwd", down) == [("all_reduce_", None, "I")]
    assert rows(tp, "bwd", down) == [("reinterpret", "I", "R")]
    assert rows(sp, "fwd", up) == [("all_gather", None, "R")]
    assert rows(sp, "bwd", up) == [("all_gather", None, "R"), ("reduce_scatter", None, "S(0)")]
    assert rows(sp, "fwd", down) == [("reduce_scatter", None, "S(0)")]
    assert rows(sp, "bwd", down) == [("all_gather", None, "R")]
    assert rows(sp, "fwd", "embedding") == [("convert", "I", "S(0)")]


def test_raw_collectives_leave_kinds_open(tp):
    loss = [op for op in tp["ops"] if tp["scopes"][op["scope"]] == "GPTModel" and "ctx" in op]
    calls = [op["attrs"] for op in loss if op["op"] == "all_reduce_" and "phase" not in op]
    group = "TENSOR_MODEL_PARALLEL_GROUP"
    assert calls == [{"group": group, "op": kind} for kind in ("max", "sum", "sum")]


def test_rank_dependent_bounds_are_values(dense):
    made = {v["id"]: op for op in dense["ops"] for v in op.get("out", [])}
    for name in ("aten.lt.Scalar", "aten.ge.Scalar"):
        bounds = [op["in"][1] for op in dense["ops"] if op["op"] == name]
        assert len(bounds) == 2
        for bound in bounds:
            chain = []
            while bound in made:
                chain.append(made[bound]["op"])
                bound = made[bound]["in"][0] if made[bound].get("in") else None
            assert chain in (["mul", "axis_index"], ["add", "mul", "axis_index"])
    index = next(op for op in dense["ops"] if op["op"] == "axis_index")
    assert index["attrs"] == {"axis": "tp"} and index["out"][0]["type"] == {"dp": "R", "tp": "V"}


def test_the_clip_factor_is_a_value(trace):
    made = {v["id"]: op["op"] for op in trace["ops"] for v in op.get("out", [])}
    inside = [op for op in trace["ops"] if trace["scopes"][op.get("scope", 0)] == "optimizer"]
    factors = [op["in"][1] for op in inside if op["op"] == "aten.mul.Tensor"]
    parameters = [p for p in trace["params"] if p["role"] == "param"]
    assert len(factors) == len(parameters) and {made[factor] for factor in factors} == {"div"}


def test_norms_add_up_the_squares_of_cut_gradients_over_tp(tp):
    parameters = [p for p in tp["params"] if p["role"] == "param"]
    cut = [p for p in parameters if p["type"]["tp"] == "V"]
    norms = [op for op in tp["ops"] if op["op"] == "total_norm"]
    counts = {tuple(op.get("attrs", {}).get("axis", [])): len(op["in"][0]) for op in norms}
    assert counts == {("tp",): len(cut), (): len(parameters) - len(cut)}


def test_gradients_leave_the_backward_as_promised(trace):
    """Stated pending where the parameter is replicate, before they are reduced; then cut."""
    parameters = [p for p in trace["params"] if p["role"] == "param"]
    pending = [p for p in parameters if "P" in p["grad"]["type"].values()]
    cut = [p for p in parameters if "spec" in p["grad"]]
    names = [op["op"] for op in trace["ops"]]
    assert names.count("reinterpret_") == len(pending) > 0 < len(cut) == names.count("from_local_")
    reductions = [i for i, op in enumerate(trace["ops"]) if i > names.index("reinterpret_")]
    reductions = [i for i in reductions if names[i].startswith(("all_reduce", "reduce_scatter"))]
    assert names.index("reinterpret_") < reductions[0]
    for op in trace["ops"]:
        if op["op"] in ("reinterpret_", "from_local_"):
            context = trace["contexts"][op["ctx"]]
            assert op["phase"] == "opt" and ("local" in context) == (op["op"] == "reinterpret_")


def test_replicas_divide_by_their_number_as_a_scale(dense):
    made = {v["id"]: op for op in dense["ops"] for v in op.get("out", [])}
    scales = [op for op in dense["ops"] if op["op"] in ("scale", "scale_")]
    assert {op["attrs"]["by"] for op in scales} == {"dp", "1/dp"}
    buckets = [op for op in scales if op["attrs"]["by"] == "1/dp"]
    assert len(buckets) == len([p for p in dense["params"] if p["role"] == "param"])
    (loss,) = [o for o in dense["outputs"] if o["role"] == "loss"]
    chain, value = [], loss["value"]
    while made[value]["op"] != "aten.sum.default":
        chain.append(made[value]["op"])
        value = made[value]["in"][0]
    assert chain == ["scale", "aten.div.Tensor", "reinterpret", "aten.div.Tensor"]
    (backward,) = [op for op in scales if op.get("phase") == "bwd"]
    assert backward["attrs"]["by"] == "dp"


def test_contracts_say_what_they_follow_from(sp):
    def reductions(suffix: str) -> list[tuple]:
        (found,) = [p for p in sp["params"] if p["role"] == "param" and p["name"].endswith(suffix)]
        return [(r["axis"], r["op"]) for r in found["x_reductions"]]

    assert reductions("layers.0.input_layernorm.weight") == [("dp", "avg"), ("tp", "sum")]
    assert reductions("layers.0.mlp.linear_fc1.weight") == [("dp", "avg")]
    assert reductions("position_embeddings.weight") == [("dp", "avg")]


def test_gradient_buckets_are_reduced_as_lists(tp):
    calls = [op for op in tp["ops"] if "DATA" in str(op.get("attrs", {}).get("group"))]
    assert len(calls) == 1 and len(calls[0]["in"][0]) == len(calls[0]["out"]) == 29


def test_planted_mistakes_change_the_program(texts, tp):
    import json

    broken = json.loads(texts["broken.spmd.json"])
    forward = [op["op"] for op in broken["ops"] if op.get("phase", "fwd") == "fwd"]
    reduce = [i for i, name in enumerate(forward) if name == "all_reduce_"]
    assert sum(forward[i - 1] == "aten.add.Tensor" for i in reduce) == 4
    flagged = json.loads(texts["broken_norm.spmd.json"])
    assert kinds(flagged)["decoder.final_layernorm.weight"][0] == "I"


def test_an_unknown_mistake_is_named():
    with pytest.raises(ValueError, match="unknown bug typo: one of bias-before-reduce"):
        megatron_gpt.record(megatron_gpt.Config(), "typo")


def test_recordings_are_deterministic(texts):
    again = spmd_trace.torch.dumps(megatron_gpt.record(megatron_gpt.Config()))
    assert again == texts["tp.spmd.json"]


def test_bundled_traces_are_current(texts):
    for name, text in texts.items():
        assert (BUNDLED / "megatron_gpt" / name).read_text() == text, f"record {name} again"
