"""The examples in the README work as they stand."""

import json
import os
import pathlib
import re
import subprocess
import sys

import jsonschema
import pytest

import judged
from traces import schema

README = pathlib.Path(__file__).parents[2] / "README.md"
_EXAMPLES = dict(
    re.findall(r"## ([^\n]*)\n(?:(?!## ).)*?```python\n(.*?)```", README.read_text(), re.S)
)
_SUITE = re.findall(r"```python\n(def test_.*?)```", README.read_text(), re.S)
_PROGRAM = """
import spmd_trace.torch, spmd_trace, torch, torch.distributed as dist

def build():
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)

def train(model, optimizer):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).square().mean().backward()
    optimizer.step()
"""

needs_checker = pytest.mark.skipif(judged.checker() is None, reason="SPMDLINT names no checker")


def test_a_recorded_program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = _EXAMPLES["Recording a program"]
    script = tmp_path / "example.py"
    script.write_text(code)
    exec(compile(code, str(script), "exec"), {"__name__": "__main__"})
    trace = json.loads((tmp_path / "step.spmd.json").read_text())
    jsonschema.Draft202012Validator(schema()).validate(trace)
    assert trace["phase"] == "joint" and trace["scopes"] == ["Linear"]
    assert [file["path"] for file in trace["files"]] == ["example.py"]


@needs_checker
def test_a_step_of_a_notebook(tmp_path):
    code = _EXAMPLES["Recording a step of a notebook or a test"]
    (tmp_path / "cells.py").write_text(_PROGRAM + code)
    line = [sys.executable, "cells.py"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0 and "no findings in" in done.stdout, done.stderr
    assert json.loads((tmp_path / "step.spmd.json").read_text())["world"] == 4


@needs_checker
def test_a_suite_with_the_fixture(tmp_path):
    (code,) = _SUITE
    (tmp_path / "test_suite.py").write_text(_PROGRAM + code)
    words = ["-p", "spmd_trace.pytest_plugin", "-p", "no:cacheprovider", "-q", "test_suite.py"]
    line = [sys.executable, "-m", "pytest", *words]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # it may be installed, too
    done = subprocess.run(
        line, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout
