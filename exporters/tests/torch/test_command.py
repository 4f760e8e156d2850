"""The command `spmd-trace`: what it imports, what it says of a wrong call."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from spmd_trace import checker, command, recording


def test_the_frameworks_are_imported_on_demand():
    code = "import sys, spmd_trace.command as c; c.main(['--help']); " \
           "sys.exit(len({'torch', 'jax', 'numpy'} & sys.modules.keys()))"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "examples" in done.stdout


def test_an_unknown_command_is_refused(capsys):
    assert command.main(["recrod"]) == 2
    assert "unknown command: recrod" in capsys.readouterr().err
    assert command.main([]) == 2


SCRIPT = pathlib.Path(__file__).parents[3] / "docs/tutorial/train.py"


def lint(*words, **environment):
    line = [sys.executable, "-m", "spmd_trace", "lint", "--nproc-per-node=2", *words, str(SCRIPT)]
    return subprocess.run(
        line, capture_output=True, text=True, check=False, env=os.environ | environment
    )


def test_a_torch_without_cuda_and_without_a_compiler_is_one_sentence(tmp_path):
    code = "import sys; from spmd_trace import recording as r; sys.exit(not r.torch_without_cuda())"
    if subprocess.run([sys.executable, "-c", code], check=False).returncode:
        pytest.skip("torch needs no stand-ins")
    done = lint(PATH=str(tmp_path), SPMDLINT=sys.executable)
    assert done.returncode == recording.FAILED
    assert re.fullmatch("spmd-trace: torch lacks its CUDA libraries and `cc` .*\n", done.stderr)


@pytest.mark.skipif("SPMDLINT" not in os.environ, reason="SPMDLINT names no checker")
def test_reports_of_lint_name_the_script():
    """Nobody has the trace that lint makes."""
    done = lint("--format=junit", "--stats", "--min-proof=100")
    assert done.returncode == 1, done.stderr
    assert f'<testsuite name="{SCRIPT}"' in done.stdout
    assert f"spmdlint: {SCRIPT}: " in done.stderr and "--min-proof" in done.stderr, done.stderr
    assert "spmd.json" not in done.stdout + done.stderr


def test_a_checker_that_is_not_where_it_is_named():
    done = lint(SPMDLINT="/nowhere/spmdlint")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == "spmd-trace: SPMDLINT names /nowhere/spmdlint, which is no program\n"


def test_without_a_checker_it_says_how_to_get_one(monkeypatch):
    monkeypatch.delenv("SPMDLINT", raising=False)
    assert "./dev build" in checker.missing()
