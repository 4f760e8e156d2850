"""A script in processes of its own: how they are started, and ended with what they have started."""

import contextlib
import os
import pathlib
import select
import signal
import subprocess
import sys


def started(
    module: str, words: list[str], stdout, stderr=None, reads=(), **variables: str
) -> subprocess.Popen:
    """A module of this package with these arguments, in an environment with these variables.

    `reads`: file descriptors that it inherits.
    """
    package = str(pathlib.Path(__file__).parents[2])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | variables
    command = [sys.executable, "-m", module, *words]
    given = {"env": environment, "start_new_session": True, "pass_fds": reads}
    return subprocess.Popen(command, stdout=stdout, stderr=stderr, **given)


def end(child: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


class Server:
    """A process that has imported what takes seconds, and forks for each folder that it is asked
    for: what it imports is imported once (`serve`)."""

    def __init__(self, module: str, stdout, **variables: str):
        reading, writing = os.pipe()
        self._requests = open(writing, "wb", buffering=0)
        self._child = started(module, [str(reading)], stdout, reads=(reading,), **variables)
        os.close(reading)

    def run(self, folder: pathlib.Path) -> "Forked":
        with contextlib.suppress(BrokenPipeError):  # it has ended, which `Forked` says
            self._requests.write(os.fsencode(folder) + b"\n")
        return Forked(self._child, folder)

    def end(self) -> None:
        """Ends it, which ends what it has forked."""
        self._requests.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(10)
        end(self._child)


class Forked:
    """A process that was forked for a folder, with those that it has started."""

    def __init__(self, server: subprocess.Popen, folder: pathlib.Path):
        self._server, self._folder = server, folder

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        ended = self._folder / _ENDED
        return int(ended.read_text()) if ended.exists() else self._server.poll()

    def end(self) -> None:
        leader = self._folder / _LEADER
        if leader.exists() and self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int(leader.read_text()), signal.SIGKILL)


_LEADER, _ENDED = "leader", "ended"


def write(file: pathlib.Path, text: str) -> None:
    """Writes a file at once: others read it."""
    partial = file.with_name(file.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(file)


def serve(requests: int, run) -> None:
    """Calls `run` with each folder that is read from a file, in a process of its own, which leads a
    group of processes. When nobody can ask any more all of them are killed, and this one ends."""
    forked: dict[int, pathlib.Path] = {}
    asked = b""
    while True:
        ready, *_ = select.select([requests], [], [], 0.01 if forked else None)
        if ready and not (more := os.read(requests, 4096)):
            break
        asked += more if ready else b""
        while b"\n" in asked:
            name, _, asked = asked.partition(b"\n")
            folder = pathlib.Path(os.fsdecode(name))
            pid = os.fork()
            if pid == 0:
                os.setpgid(0, 0)
                os.close(requests)
                write(folder / _LEADER, str(os.getpid()))
                run(folder)
                os._exit(0)
            forked[pid] = folder
        if forked:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid:
                write(forked.pop(pid) / _ENDED, str(os.waitstatus_to_exitcode(status)))
    for pid in forked:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    os._exit(0)  # what was imported may print or wait when Python exits
