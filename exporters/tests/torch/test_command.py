"""The command `spmd-trace`: what it imports, what it says of a wrong call."""

import subprocess
import sys

from spmd_trace import command


def test_the_frameworks_are_imported_on_demand():
    code = "import sys, spmd_trace.command as c; c.main(['--help']); " \
           "sys.exit(len({'torch', 'jax', 'numpy'} & sys.modules.keys()))"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "examples" in done.stdout


def test_an_unknown_command_is_refused(capsys):
    assert command.main(["recrod"]) == 2
    assert "unknown command: recrod" in capsys.readouterr().err
    assert command.main([]) == 2
