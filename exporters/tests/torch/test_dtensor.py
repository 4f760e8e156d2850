"""The checker against DTensor, one operation and one assignment of placements at a time."""

import collections
import json
import math
import pathlib
import subprocess
import sys
import tomllib

import pytest
import torch

import of_one_torch  # noqa: F401  what is kept is of one version
import judged
from spmd_trace.torch.dtensor import assignments, comparison, programs, propagation, record
from spmd_trace.torch.dtensor import samples, verdicts
from spmd_trace.torch.dtensor.cases import by_name
from spmd_trace.torch.dtensor.simulation import Simulation

_TABLE = pathlib.Path(__file__).with_name("dtensor_differences.toml")
_needs_checker = pytest.mark.skipif(
    judged.checker() is None, reason="SPMDLINT does not name a checker"
)


@pytest.fixture(scope="module")
def recorded() -> dict:
    return record.recording()


@pytest.fixture(scope="module")
def judgements(recorded) -> list[verdicts.Verdict]:
    return verdicts.judged(recorded, judged.checker())


@pytest.fixture(scope="module")
def differences(recorded, judgements) -> list[comparison.Difference]:
    return comparison.differences(recorded, judgements)


@pytest.fixture(scope="module")
def table() -> list[dict]:
    read = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    rows = read.get("difference", [])
    return rows + [row | {"right": "fault"} for row in read.get("fault", [])]


def _matching(row: dict, found: list[comparison.Difference]) -> list[comparison.Difference]:
    return [
        one
        for one in found
        if one.kind == row["kind"] and one.sign in row["signs"] and one.case in row["cases"]
    ]


def _simulation(recorded: dict, row: dict) -> Simulation:
    sizes = list(recorded["meshes"][row["mesh"]].values())
    return Simulation(by_name(row["case"]), row, sizes)


def _dtensor_holds(recorded: dict, row: dict) -> bool | None:
    claims = [tuple(result["at"]) if "at" in result else None for result in row["results"]]
    return _simulation(recorded, row).holds(0, claims)


def _checker_holds(recorded: dict, row: dict, verdict: verdicts.Verdict) -> bool | None:
    claims = [None if "?" in result.at else result.at for result in verdict.results]
    sizes = recorded["meshes"][row["mesh"]]
    scales = [math.prod(sizes[axis] for axis in result.scale) for result in verdict.results]
    return _simulation(recorded, row).holds(verdict.way, claims, scales)


def _excuses(rows: list[dict], recorded: dict, row: dict, verdict: verdicts.Verdict) -> bool:
    found = comparison.differences(recorded | {"rows": [row]}, [verdict])
    return any(_matching(one, found) for one in rows)


def test_recording_covers_many_operations(recorded):
    rows = recorded["rows"]
    assert len({row["op"] for row in rows}) >= 200 and len(rows) >= 5000
    assert {row["mesh"] for row in rows} == set(recorded["meshes"])
    decisions = collections.Counter(row["verdict"] for row in rows)
    assert decisions["keeps"] > 1500 and decisions["redistributes"] > 2000 and decisions["error"]


def test_another_process_records_the_same_bytes(recorded, tmp_path):
    names = ["mm", "scatter_add", "view merge all", "_foreach_mul.Tensor"]
    output = tmp_path / "decisions.json"
    options = [option for name in names for option in ("--case", name)]
    command = [sys.executable, "-m", "spmd_trace", "dtensor", "-o", str(output), *options]
    subprocess.run(command, check=True, capture_output=True)
    rows = [row for row in recorded["rows"] if row["case"] in names]
    assert output.read_text() == record.dumps(recorded | {"rows": rows})


def test_running_agrees_with_the_decision(recorded):
    """No collective runs, and the results are placed as stated: a part of all decisions."""
    with record.ranks():
        meshes = propagation.meshes()
        for row in [row for row in recorded["rows"] if row["verdict"] == "keeps"][::7]:
            case = by_name(row["case"])
            if case.runs:
                at = [tuple(operand["at"]) for operand in row["operands"]]
                results, collectives = propagation.Asked(case, meshes[row["mesh"]], at).run()
                expected = [
                    {key: one[key] for key in ("local", "at") if key in one}
                    for one in row["results"]
                ]
                assert not collectives and results == expected, row["case"]


def test_decisions_are_those_that_dtensor_documents(recorded):
    def decision(case, *at):
        (row,) = [
            row
            for row in recorded["rows"]
            if row["case"] == case and [one["at"] for one in row["operands"]] == [[w] for w in at]
        ]
        results = [result.get("at") for result in row["results"]]
        return row["verdict"], results if row["verdict"] == "keeps" else row["wanted"]

    assert decision("relu", "P") == ("redistributes", [["R"]])
    assert decision("mm", "S(1)", "S(0)") == ("keeps", [["P"]])
    assert decision("add.Tensor", "S(0)", "R") == ("redistributes", [["S(0)"], ["S(0)"]])
    assert decision("mean", "S(0)") == ("keeps", [["P(avg)"]])
    # Its handler gathers the local results, which its rule for placements does not say.
    assert decision("argmax", "S(0)")[0] == "redistributes"


@_needs_checker
def test_every_difference_has_a_reason(differences, table):
    named = collections.Counter()
    for one in differences:
        named[one.kind, one.sign, one.case] = sum(1 for row in table if _matching(row, [one]))
    assert not [name for name, rows in sorted(named.items()) if rows != 1]


@_needs_checker
def test_every_row_of_the_table_occurs(differences, table):
    gone = []
    for row in table:
        found = _matching(row, differences)
        words = {word for one in found for word in (one.case, one.sign)}
        missing = sorted({*row["cases"], *row["signs"]} - words)
        gone += [(row["kind"], word, row["why"]) for word in missing]
    assert not gone


@_needs_checker
def test_what_the_checker_accepts_is_so_on_data(recorded, judgements, table):
    """Other readings of local sizes and faults apart."""
    excused = [row for row in table if row["right"] == "fault"]
    excused += [
        row
        for row in table
        if row["kind"] == "c" and row["cases"][0].startswith(("new_", "view split"))
    ]
    wrong, known = [], 0
    for row, verdict in zip(recorded["rows"], judgements):
        holds = None if verdict.findings else _checker_holds(recorded, row, verdict)
        known += holds is True
        if holds is False and not _excuses(excused, recorded, row, verdict):
            wrong.append((row["case"], [operand["at"] for operand in row["operands"]]))
    assert not wrong and known > 1500


@_needs_checker
def test_who_is_right_is_so_on_data(recorded, judgements, table):
    """Where DTensor keeps operands and the checker does not agree, DTensor must not be wrong."""
    wrong = set()
    for row, verdict in zip(recorded["rows"], judgements):
        differ = comparison.differences(recorded | {"rows": [row]}, [verdict])
        if differ and row["verdict"] == "keeps" and _dtensor_holds(recorded, row) is False:
            wrong.add(row["case"])
    assert wrong == {"_foreach_mul.Tensor"}
    named = [row for row in table if wrong & set(row["cases"]) and row["kind"] in "ac"]
    assert [row["right"] for row in named] == ["checker"]


def test_a_wrong_claim_does_not_hold(recorded):
    def row_of(case, *at):
        return next(
            row
            for row in recorded["rows"]
            if row["case"] == case and [one["at"] for one in row["operands"]] == [[w] for w in at]
        )

    summed = _simulation(recorded, row_of("mm", "S(1)", "S(0)"))
    assert summed.holds(0, [("P",)]) and not summed.holds(0, [("R",)])
    assert summed.holds(0, [("S(0)",)]) is False and summed.holds(0, [None]) is None
    curved = _simulation(recorded, row_of("relu", "P"))
    assert curved.holds(0, [("P",)]) is False
    average = _simulation(recorded, row_of("mean", "S(0)"))
    assert average.holds(0, [("P",)]) is False and average.holds(0, [("P(avg)",)])
    assert average.holds(0, [("P",)], scales=[4]) and not average.holds(0, [("P",)], scales=[2])


def test_types_of_results_are_read():
    line = "%1.r0: f32[2@(dp,tp), 4] of [8, 4], %1.r1 aliases %1.0: f32[] R|I@dp P@tp = op %1.0"
    found = verdicts.types(line + "\n%2: f32[2@(tp,dp)] = op %1.0\n", ["dp", "tp"])
    assert found["%1.r0"] == verdicts.Type(("S(0)", "S(0)"), (2, 4))
    assert found["%1.r1"] == verdicts.Type(("R", "P"), ())
    assert found["%2"].at == ("S(0) out of order", "S(0) out of order")


def test_two_axes_on_one_dimension_are_nested():
    assert programs.spec(["S(1)", "S(1)"], ["dp", "tp"], 2) == (
        {"dp": "V", "tp": "V"},
        [None, ["dp", "tp"]],
    )
    assert programs.spec(["P", "S(0)"], ["dp", "tp"], 1) == ({"dp": "P", "tp": "V"}, ["tp"])


def test_assignments_follow_what_is_suggested():
    words = ["R", "P", "S(0)", "S(1)"]
    chosen = assignments.one_axis([words] * 4, lambda asked: (asked[0],) * 4)
    assert chosen == sorted(set(chosen)) and len(chosen) <= assignments.KEPT + assignments.OTHERS
    uniform = [one for one in chosen if len(set(one)) == 1]
    assert len(uniform) == len(words) and len(chosen) > len(uniform)


def test_uneven_blocks_are_asked_about_only_on_request():
    sample = samples.floats(6, 8)
    assert sample.options(4, uneven=False) == ["R", "P", "S(1)"]
    assert sample.options(4, uneven=True) == ["R", "P", "S(0)", "S(1)"]
    assert samples.booleans(2).options(2, uneven=False) == ["R", "S(0)"]
    assert samples.integers(3, below=5).tensor((3,)).dtype == torch.int64


@_needs_checker
def test_command_prints_the_comparison(tmp_path):
    output = tmp_path / "decisions.json"
    command = [sys.executable, "-m", "spmd_trace", "dtensor", "-o", str(output), "--case", "nansum"]
    command += ["--checker", judged.checker()]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = json.loads(output.read_text())["rows"]
    assert f"{len(rows)} pairs of 1 operations" in printed
    assert "a partial-into-nonlinear: nansum" in printed
