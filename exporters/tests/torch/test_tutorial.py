"""The traces of docs/tutorial are what its recording script writes today, and its workflow turns
red."""

import os
import pathlib
import re
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


def spmd_trace(*words, cwd, env=None):
    command = [sys.executable, "-m", "spmd_trace", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, env=env)


def test_what_is_recorded_of_the_script(tmp_path):
    (tmp_path / "train.py").write_bytes((TUTORIAL / "train.py").read_bytes())
    words = ("record", "-o", "recorded.spmd.json", "--nproc-per-node", "4", "train.py")
    assert spmd_trace(*words, cwd=tmp_path).returncode == 0
    assert (tmp_path / "recorded.spmd.json").read_bytes() == (
        TUTORIAL / "recorded.spmd.json"
    ).read_bytes()


@pytest.mark.parametrize("data", ("real", "fake"))
def test_torch_alone_is_enough(data, tmp_path):
    """What torch does not need is not installed with it: NumPy, for one."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['numpy'] = None\n")
    (tmp_path / "train.py").write_bytes((TUTORIAL / "train.py").read_bytes())
    words = ("record", "-o", "step.spmd.json", f"--data={data}", "--nproc-per-node", "4")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = spmd_trace(*words, "train.py", cwd=tmp_path, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    if data == "real":
        recorded = (tmp_path / "step.spmd.json").read_bytes()
        assert recorded == (TUTORIAL / "recorded.spmd.json").read_bytes()


@pytest.mark.skipif("SPMDLINT" not in os.environ, reason="SPMDLINT names no checker")
def test_the_workflow_of_the_tutorial_is_red_until_the_script_is_repaired(tmp_path):
    """Its last step, with the script in a folder of the repository: annotations name it there."""
    page = TUTORIAL.with_suffix(".md").read_text()
    workflow = re.search(r"<!-- workflow -->\n```yaml\n(.*?)```", page, re.DOTALL)[1]
    (step,) = re.findall(r"- run: spmd-trace (.*)", workflow)
    (tmp_path / "src").mkdir()
    words = step.replace("train.py", "src/train.py").split()
    for name, code in (("train.py", 1), ("train_fixed.py", 0)):
        (tmp_path / "src/train.py").write_bytes((TUTORIAL / name).read_bytes())
        done = spmd_trace(*words, cwd=tmp_path)
        assert done.returncode == code, done.stdout + done.stderr
        assert ("::error file=src/train.py,line=12," in done.stdout) == bool(code), done.stdout
