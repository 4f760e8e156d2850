"""The traces of docs/tutorial are what its recording script writes today."""

import pathlib
import subprocess
import sys

import pytest

import of_one_torch  # noqa: F401  what is kept is of one version

TUTORIAL = pathlib.Path(__file__).resolve().parents[3] / "docs" / "tutorial"


@pytest.mark.parametrize(
    "script, trace", [("train", "step.spmd.json"), ("train_fixed", "fixed.spmd.json")]
)
def test_the_recording_script_of_the_tutorial(script, trace, tmp_path):
    for file in ("record.py", f"{script}.py"):
        (tmp_path / file).write_bytes((TUTORIAL / file).read_bytes())
    subprocess.run([sys.executable, "record.py", script, trace], cwd=tmp_path, check=True)
    assert (tmp_path / trace).read_bytes() == (TUTORIAL / trace).read_bytes()
