"""A script in processes of its own: how they are started, and ended with what they have started."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys


def started(
    module: str, words: list[str], stdout, stderr=None, **variables: str
) -> subprocess.Popen:
    """A module of this package with these arguments, in an environment with these variables."""
    package = str(pathlib.Path(__file__).parents[1])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | variables
    command = [sys.executable, "-m", module, *words]
    return subprocess.Popen(
        command, env=environment, start_new_session=True, stdout=stdout, stderr=stderr
    )


def end(child: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
