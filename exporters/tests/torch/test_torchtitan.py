"""torchtitan's training step: the recording, and its types against those of spmd_types."""

import collections
import json
import pathlib
import re

import jsonschema
import pytest

import of_one_torch  # noqa: F401  what is kept is of one version
import judged
import spmd_trace.torch
import test_megatron as documents
from spmd_trace.torch.document import Numbering
from spmd_trace.torch.programs import torchtitan_models
from traces import schema

BUNDLED = pathlib.Path(__file__).parents[3] / "examples" / "torchtitan"
_GRIDS = [(model, grid) for model, grids in torchtitan_models.PARALLEL.items() for grid in grids]


@pytest.fixture(scope="module", params=_GRIDS, ids=["-".join(grid) for grid in _GRIDS])
def recording(request):
    model, grid = request.param
    config = torchtitan_models.Config(model, **torchtitan_models.PARALLEL[model][grid])
    made = torchtitan_models.record(config)
    made.name = f"{model}_{grid}.spmd.json"
    made.text = spmd_trace.torch.dumps(made.program)
    made.trace = json.loads(made.text)
    return made


@pytest.fixture
def trace(recording) -> dict:
    return recording.trace


def test_traces_fit_the_schema(trace):
    jsonschema.Draft202012Validator(schema()).validate(trace)


def test_traces_are_sound_documents(trace):
    documents.test_values_are_defined_once_and_before_use(trace)
    documents.test_tables_are_within_bounds(trace)
    documents.test_writes_follow_the_rules_of_mutation(trace)
    documents.test_backward_is_paired(trace)


def test_bundled_traces_are_current(recording):
    assert (BUNDLED / recording.name).read_text() == recording.text, "record it again"


def test_everything_comes_from_somewhere(trace):
    assert collections.Counter(p["role"] for p in trace["params"])["const"] == 0
    typed = [p for p in trace["params"] if p["role"] in ("input", "param")]
    assert all(set(p["type"].values()) <= {"R", "I", "V", "P"} for p in typed)
    parameters = {p["id"] for p in typed if p["role"] == "param"}
    for role in ("grad", "state"):
        assert parameters <= {o.get("of") for o in trace["outputs"] if o["role"] == role}


def test_transitions_of_the_program_are_typed_both_ways(trace):
    words = collections.Counter()
    for op in trace["ops"]:
        if op["op"] in ("all_gather", "all_reduce", "reduce_scatter", "convert", "all_to_all"):
            if "axis" in op["attrs"]:
                phase = op.get("phase", "fwd")
                words[phase, op["op"], op["attrs"].get("src"), op["attrs"]["dst"]] += 1
    forward = {key[1:]: n for key, n in words.items() if key[0] == "fwd"}
    backward = {key[1:]: n for key, n in words.items() if key[0] == "bwd"}
    assert all(src is not None for _, src, _ in forward)
    # The backward of a sum that gives I is free, that of one that gives R is another sum.
    if ("all_reduce", "P", "I") in forward:
        assert backward["convert", "I", "R"] == forward["all_reduce", "P", "I"]
    if ("reduce_scatter", "P", "S(1)") in forward:
        scatters = forward["reduce_scatter", "P", "S(1)"]
        assert backward["all_gather", "S(1)", "R"] == scatters


def test_contexts_follow_the_regions_of_the_program(trace):
    contexts = trace["contexts"]
    meshes = [mesh["id"] for mesh in trace["meshes"]]
    assert {context["mesh"] for context in contexts} == set(meshes)
    assert contexts[0] == {"mesh": "dense"} and trace["mode"] == "global"
    used = collections.Counter()
    for op in trace["ops"]:
        context = contexts[op.get("ctx", 0)]
        used["global" if "local" not in context else "local", op.get("phase", "fwd")] += 1
        if not context.get("check", True):
            used["unchecked"] += 1
    assert used["global", "fwd"] > 100 < used["local", "bwd"]
    assert used["local", "fwd"] > 50 and used["unchecked"] > 0


def test_assertions_of_the_program_are_operations(trace):
    asserted = [op for op in trace["ops"] if op["op"] == "assert_type"]
    assert len(asserted) > 60
    assert any(op["attrs"].get("spec") for op in asserted)
    pending = [op["attrs"]["partial"] for op in trace["ops"] if "partial" in op.get("attrs", {})]
    assert "tp" in pending


def test_a_mistake_that_spmd_types_cannot_see_is_found(tmp_path):
    grid = torchtitan_models.PARALLEL["llama3"]["tp_sp"]
    made = torchtitan_models.record(torchtitan_models.Config(**grid), "unsummed-norms")
    path = BUNDLED / "llama3_broken.spmd.json"
    assert path.read_text() == spmd_trace.torch.dumps(made.program), "record it again"
    if judged.checker() is not None:
        found = judged.findings(path)
        assert found["unreduced-gradient"] == 5  # the norms of two layers, and the last one
        assert set(found) == {"unreduced-gradient", "unchecked-claim"}


def test_an_unknown_mistake_is_named():
    with pytest.raises(ValueError, match="unknown bug typo: one of unsummed-norms"):
        torchtitan_models.record(torchtitan_models.Config(), "typo")


# Types value by value.

_ROW = re.compile(r"^\| `([^`]+:\d+)` \| `([\w.]+)` \| (\w+) \| (\S+) \| (\S+) \| .+ \|$", re.M)


def listed_differences(name: str) -> set[tuple]:
    """The rows of the table under the heading of a trace, or of all traces."""
    text = (BUNDLED / "README.md").read_text().split("## Where the two disagree")[1]
    shared, _, own = text.partition("### Only in `")
    rows = set(_ROW.findall(shared.split("\n## ")[0]))
    for part in own.split("### Only in `"):
        if part.startswith(name + "`"):
            rows |= set(_ROW.findall(part.split("\n## ")[0]))
    return rows


def place_of(program, op) -> str:
    loc = program.locations.locs[op.loc]
    path = program.locations.files_json()[loc["file"]]["path"]
    return f"{path}:{loc['line']}"


@pytest.mark.skipif(judged.checker() is None, reason="SPMDLINT does not name a checker")
def test_types_are_those_of_spmd_types(recording, tmp_path):
    path = tmp_path / "trace.spmd.json"
    path.write_text(recording.text)
    ours, names, program = judged.kinds(path), Numbering(recording.program), recording.program
    theirs = {found.value: found.kinds for found in recording.words.found}
    made = {value: op for op in program.ops for value in op.outs}
    assert len(theirs) > 150
    different = set()
    for value, kinds in theirs.items():
        for axis, kind in kinds.items():
            here = ours[names(value)].get(axis)
            if here != kind and not (here == "R|I" and kind in "RI"):
                op, shown = made[value], str(here).replace("|", "\\|")
                different.add((place_of(program, op), op.name, axis, kind, shown))
    assert different == listed_differences(recording.name)


@pytest.mark.skipif(judged.checker() is None, reason="SPMDLINT does not name a checker")
def test_the_benchmark_measures_both(monkeypatch, capsys):
    monkeypatch.syspath_prepend(pathlib.Path(__file__).parents[2])
    import bench_spmd_types

    words = ["bench", "--layers", "1", "--runs", "2", "--checker", judged.checker()]
    monkeypatch.setattr("sys.argv", words)
    assert bench_spmd_types.main() == 0
    row = r"^(global|local) +(spmd\w+) +(-?[\d.]+) us per"
    rows = re.findall(row, capsys.readouterr().out, re.M)
    tools = ["spmdlint", "spmd_types"]
    assert [row[:2] for row in rows] == [
        (mode, tool) for mode in ("global", "local") for tool in tools
    ]
    assert all(float(time) > 0 for *_, time in rows)
