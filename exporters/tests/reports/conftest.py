"""The checker under test, and inputs that have all that a report can hold."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
LINT = os.environ.get("SPMDLINT", str(ROOT / "build/checker/spmdlint"))
RENDERED = ROOT / "tests/cases/render"

# Folded findings, notes, fixes with and without a place, suppressions, an input that cannot be
# read.
INPUTS = (
    "fold.spmd",
    "parameters.spmd",
    "suppressed.spmd",
    "observed.spmd.json",
    "clean.spmd",
    "../cli/malformed.spmd",
)


def lint(*words, cwd=RENDERED):
    return subprocess.run(
        [LINT, "check", *map(str, words)], cwd=cwd, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="session")
def findings():
    """What the JSON output says of the inputs, which is everything."""
    import json

    return json.loads(lint("--format=json", *INPUTS).stdout)


@pytest.fixture
def written(tmp_path):
    """Writes the report of the inputs in one format; its path."""

    def write(form, *inputs):
        path = tmp_path / f"report.{form}"
        done = lint(f"--format={form}:{path}", "--quiet", *(inputs or INPUTS))
        assert done.returncode in (0, 1, 3) and path.exists(), done.stderr
        return path

    return write
