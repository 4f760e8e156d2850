"""The checker against JAX, one small program and one assignment of states at a time."""

import collections
import os
import pathlib
import subprocess
import tomllib

import of_one_jax  # noqa: F401  what is inferred is of one version
import pytest

from spmd_trace.jax.conformance import cases, comparison, sampling, verdicts
from test_programs import needs_checker, needs_runner

_TABLE = pathlib.Path(__file__).with_name("jax_differences.toml")


@pytest.fixture(scope="module")
def recorded() -> list[sampling.Recorded]:
    found = []
    for sample in cases.samples():
        one = sampling.forward(sample)
        found.append(one)
        if isinstance(more := sampling.backward(sample, one), sampling.Recorded):
            found.append(more)
    return found


@pytest.fixture(scope="module")
def judged(recorded) -> list[verdicts.Verdict]:
    return verdicts.judged([one.text for one in recorded], os.environ["SPMDLINT"])


@pytest.fixture(scope="module")
def differing(recorded, judged) -> list[tuple[sampling.Recorded, comparison.Difference]]:
    return [
        (one, difference)
        for one, verdict in zip(recorded, judged)
        for difference in comparison.differences(one.name, one.program, one.refusal, verdict)
    ]


@pytest.fixture(scope="module")
def table() -> list[dict]:
    return tomllib.loads(_TABLE.read_text(encoding="utf-8"))["difference"]


def _case(name: str) -> str:
    return name.split(" [")[0] + (" gradients" if name.endswith(" gradients") else "")


def _names(row: dict, one: comparison.Difference) -> bool:
    return one.kind == row["kind"] and one.sign in row["signs"] and _case(one.case) in row["cases"]


def test_many_programs_are_compared(recorded):
    refused = [one for one in recorded if one.refusal is not None]
    assert len(recorded) >= 1900 and 400 <= len(refused) <= len(recorded) / 2
    assert sum(one.name.endswith(" gradients") for one in recorded) >= 400
    values = sum(comparison.compared_values(one.program) for one in recorded if not one.refusal)
    assert values >= 5000
    ops = {op.name for one in recorded for body in [one.program.main, *one.program.main.bodies()]
           for op in body.ops}  # fmt: skip
    assert len(ops) >= 90


@needs_checker
def test_every_difference_is_named(differing, table):
    unnamed = [one for _, one in differing if not any(_names(row, one) for row in table)]
    assert not unnamed


@needs_checker
def test_every_row_of_the_table_occurs(differing, table):
    for row in table:
        found = [one for _, one in differing if _names(row, one)]
        assert {one.sign for one in found} == set(row["signs"])
        assert {_case(one.case) for one in found} == set(row["cases"])
        assert row["right"] in ("checker", "JAX", "both") and row["why"]


@needs_checker
def test_most_programs_agree(recorded, differing):
    differ = {id(one) for one, _ in differing}
    kinds = collections.Counter(difference.kind for _, difference in differing)
    assert len(differ) < len(recorded) / 8
    assert set(kinds) == {"a", "b", "c"}


@needs_checker
@needs_runner
def test_data_uphold_what_the_checker_accepts_and_jax_does_not(
    differing, judged, recorded, tmp_path
):
    """Simulated ranks hold what the checker's types say, in every value."""
    refused = {id(one) for one, verdict in zip(recorded, judged) if verdict.findings}
    programs = {one.name: one.text for one, _ in differing if id(one) not in refused}
    not_run = []
    for number, (name, text) in enumerate(programs.items()):
        path = tmp_path / f"{number}.spmd.json"
        path.write_text(text, encoding="utf-8")
        command = [os.environ["SPMDRUN"], "--check=all", "--no-backward", "--isolated", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode != 1, (name, done.stdout)
        if done.returncode:
            not_run.append(name)
    # A row without numbers; drawn inputs that are not positive definite.
    assert not_run == ["fft [Reduced]", "cholesky [Reduced]"] and len(programs) > 80
