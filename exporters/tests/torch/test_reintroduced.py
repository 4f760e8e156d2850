"""Public bugs of real packages, made again in memory: the checker names each of them."""

import json

import pytest

import of_one_torch  # noqa: F401  what is kept is of one version
import judged
import spmd_trace.torch
from spmd_trace.torch.programs import known_megatron_bugs, known_torchtitan_bugs

pytestmark = pytest.mark.skipif(judged.checker() is None, reason="SPMDLINT does not name a checker")

# The finding, its axes, where it is (the end of the path and the line's function, or an output of
# the trace), and the parameter whose gradient it is about.
_MEGATRON = {
    "A01": ("loss-kind", ["tp"], "output loss", None),
    "A02": ("reduce-of-replicated", ["tp"], "tensor_parallel/cross_entropy.py", None),
    "A07": ("wrong-axis", ["dp"], "tensor_parallel/mappings.py", None),
    "A08": ("invariant-mixed", ["tp"], "fusions/fused_softmax.py", "softmax_offset"),
    "A11": ("partial-into-nonlinear", ["tp"], "optimizer/optimizer.py", "q_layernorm.weight"),
    "A13": ("loss-kind", ["tp"], "output loss", None),
    "B03": ("invariant-mixed", ["tp"], "bert/pooler.py", "pooler.dense.weight"),
    "B08": ("scale-mismatch", ["cp"], "programs/megatron_gpt.py", "word_embeddings.weight"),
    "B09": ("scale-mismatch", ["tp"], "programs/megatron_gpt.py", "linear_fc1.weight"),
    "B10": ("scale-mismatch", ["ep"], "programs/known_megatron_bugs.py", "linear_fc1.weight"),
    "B11": ("norm-undercount", ["tp"], "optimizer/optimizer.py", "linear_fc1.weight"),
    "B16": ("partial-into-nonlinear", ["pp"], "optimizer/optimizer.py", "word_embeddings.weight"),
    "G02": ("partial-with-varying", ["tp"], "finalize_model_grads.py", "layernorm.weight"),
    "G03": ("norm-overcount", ["tp"], "optimizer/optimizer.py", "position_embeddings.weight"),
    "G04": ("partial-into-nonlinear", ["dp"], "optimizer/optimizer.py", "word_embeddings.weight"),
    "loss group": ("loss-kind", ["tp"], "output loss", None),
}
_TORCHTITAN = {
    "C05": ("loss-kind", ["tp"], "output loss", None),
    "C08": ("partial-into-nonlinear", ["tp"], "distributed/utils.py", "attention.wo.bias"),
    "C11": ("scale-mismatch", ["efsdp"], "distributed/utils.py", "inner_experts.w1_EFD"),
}
_EXPECTED = _MEGATRON | _TORCHTITAN
_KNOWN = known_megatron_bugs.KNOWN | known_torchtitan_bugs.KNOWN


def place_of(found: dict, text: str) -> str:
    """The source file of a finding, or which output of the trace it is about."""
    place = found["places"][0]
    if not place["in_input"]:
        return place["path"]
    row = json.loads(text.splitlines()[place["line"] - 1].strip().rstrip(","))
    return f"output {row['role']}"


def parameter_of(found: dict, trace: dict) -> str | None:
    """The parameter that the operand of a finding is, or whose gradient it is."""
    values = {p["id"]: p for p in trace["params"]}
    values |= {v["id"]: v for op in trace["ops"] for v in op.get("out", [])}
    names = {p["id"]: p["name"] for p in trace["params"] if p["role"] == "param"}
    for row in trace["outputs"]:
        value = row["value"] if row["role"] == "grad" else None
        while value is not None and value not in names:  # the same storage, before it was scaled
            names[value], value = row["name"], values.get(value, {}).get("alias_of")
    makers = {v["id"]: op for op in trace["ops"] for v in op.get("out", [])}
    operand = found["arguments"].get("operand") or {}
    queue = [found["arguments"].get("value"), operand.get("value")]
    while queue:
        if (current := queue.pop()) is None:
            continue
        value, maker = values.get(current, {}), makers.get(current, {"op": None})
        if (name := names.get(current) or names.get(value.get("grad_of"))) is not None:
            return name
        queue.append(value.get("alias_of"))
        if maker["op"] == "aten.add_.Tensor":  # a gradient that is added to its buffer
            queue.append(maker["in"][1])
        if maker["op"] == "aten.addmm.default":
            queue += maker["in"]
    return None


def check(text: str, path) -> list[dict]:
    path.write_text(text)
    return judged.reports(path)


@pytest.mark.parametrize("name", _EXPECTED)
def test_the_checker_names_a_bug(name, tmp_path):
    kind, axes, place, parameter = _EXPECTED[name]
    text = spmd_trace.torch.dumps(_KNOWN[name].record())
    trace, reports = json.loads(text), check(text, tmp_path / "bug.spmd.json")
    about = [
        (found["name"], found["arguments"].get("axes"), place_of(found, text), found)
        for found in reports
    ]
    fitting = [row for row in about if row[:2] == (kind, axes) and place in row[2]]
    assert fitting, [row[:3] for row in about]
    if parameter is not None:
        named = [parameter_of(found, trace) or "" for *_, found in fitting]
        assert any(name.endswith(parameter) for name in named), named


@pytest.mark.parametrize("name", _KNOWN)
def test_a_repaired_program_is_clean(name, tmp_path):
    known = _KNOWN[name]
    if known.mistake is None and known.repair is None:
        pytest.skip("the mistake is a setting: the bundled traces are without it")
    text = spmd_trace.torch.dumps(known.record_repaired())
    assert check(text, tmp_path / "repaired.spmd.json") == []


def test_every_bug_has_an_expectation_and_a_place_where_it_was_reported():
    assert set(_EXPECTED) == set(_KNOWN)
    for name, known in _KNOWN.items():
        assert known.what and (known.link.startswith("https://") or name == "loss group")
