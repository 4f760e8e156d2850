"""Runs of `spmdrun` as processes: how they are started, watched and ended; what a test needs."""

import argparse
import collections.abc
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]

MARK = "SPMD_TEST_RUN"

# As root, in a container, with fewer cores than ranks.
MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    "ASAN_OPTIONS": "detect_leaks=0",  # of a sanitized build: Open MPI leaves memory behind
}

LIMIT = 60  # seconds, for any run; what is said to end sooner is measured

# Ranks: programs, those of the tests and of the examples.
PROGRAMS = {
    2: ["tests/cluster/collectives2.spmd", "tests/cases/run/added_products.spmd"],
    4: [
        "tests/cluster/rows4.spmd",
        "tests/cluster/empty4.spmd",
        "tests/cases/run/mlp.spmd",
        "examples/vocab_parallel/good.spmd",
        "examples/moe_dispatch/good.spmd",
        "examples/context_parallel/ring.spmd",
        "examples/fsdp/good.spmd",
    ],
    8: ["tests/cluster/axes8.spmd", "examples/pipeline/good.spmd"],
}

MLP = ROOT / "tests/cases/run/mlp.spmd"

# Patient at the start: MPI takes its time on a machine with other work.
LONG = ["--check=off", "--tier=real", "--seeds=1000000", "--quiet", "--join-timeout=120"]

FAULT_SECONDS = 30  # on a machine with other work


def options():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("spmdrun", type=pathlib.Path)
    arguments.add_argument(
        "--devices", type=pathlib.Path, help="the plug-in whose devices are simulated"
    )
    arguments.add_argument("--repeat", type=int, default=1, help="of each fault")
    arguments.add_argument("--only", default="", help="tests whose name has this word")
    return arguments.parse_args()


OPTIONS = options()
SPMDRUN = OPTIONS.spmdrun.resolve()
DEVICES = OPTIONS.devices and OPTIONS.devices.resolve()


# What a test may need. Each says why it is not here, or nothing.
def mpi():
    if not (SPMDRUN.parent / "spmd_mpi.so").exists():
        return "built without MPI (libopenmpi-dev, openmpi-bin)"
    return "" if shutil.which("mpirun") else "no mpirun here"


def simulated_devices():
    return "" if DEVICES else "this build has no plug-in with simulated devices (long_tests)"


def networks():
    if not shutil.which("ip"):
        return "no `ip` here (iproute2)"
    name = f"spmd{uuid.uuid4().hex[:8]}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
    return f"no networks can be made here: {made.stderr.strip()}" if made.returncode else ""


@dataclasses.dataclass
class Test:
    name: str
    call: collections.abc.Callable
    fault: bool
    needs: tuple

    def skip_reason(self):
        if reason := next(filter(None, (need() for need in self.needs)), ""):
            return reason
        sanitized = self.fault and b"__asan_init" in SPMDRUN.read_bytes()
        return "the sanitizers take memory and time of their own" if sanitized else ""


TESTS = []


def test(name=None, *arguments, fault=False, needs=(mpi,)):
    """A test, under its own name or this one, with these arguments. `fault`: it takes time that a
    sanitized build does not have, and is what `--repeat` repeats."""

    def add(function):
        TESTS.append(
            Test(
                name or function.__name__.replace("_", "-"),
                functools.partial(function, *arguments),
                fault,
                needs,
            )
        )
        return function

    return add


class Failed(Exception):
    pass


def expect(condition, what, *shown):
    if not condition:
        raise Failed("\n".join([what, *map(str, shown)]))


def computed(pid):
    """Seconds of a processor that a process has had."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def threads(pid):
    """The names of the threads of a process."""
    return [each.read_text().strip() for each in pathlib.Path(f"/proc/{pid}/task").glob("*/comm")]


class Run:
    """A command with all the processes that come of it, which can be found again by a mark."""

    def __init__(self, words, **environment):
        self.mark = uuid.uuid4().hex
        kept = {
            name: value
            for name, value in os.environ.items()
            if not re.match(r"(OMPI|PMI|SLURM|SPMD|MASTER|RANK|WORLD|LOCAL)_?", name)
        }
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [str(word) for word in words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**kept, **MPI_ENVIRONMENT, **environment, MARK: self.mark},
            start_new_session=True,
        )

    def processes(self):
        """Of the tool: rank and process id; -1 for what has no rank."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                environment = (entry / "environ").read_bytes().split(b"\0")
                command = (entry / "cmdline").read_bytes()
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            if f"{MARK}={self.mark}".encode() not in environment or state == "Z":
                continue
            rank = -1
            if command.startswith(str(SPMDRUN).encode()):
                for variable in environment:
                    name, _, value = variable.partition(b"=")
                    if name in (b"OMPI_COMM_WORLD_RANK", b"RANK"):
                        rank = int(value)
            found.append((rank, int(entry.name)))
        return found

    def rank(self, rank, ranks=range(4)):
        """The process of a rank, once all of `ranks` run."""
        end = time.monotonic() + LIMIT
        while time.monotonic() < end and self.process.poll() is None:
            found = dict(self.processes())
            if all(r in found for r in ranks):
                return found[rank]
            time.sleep(0.05)
        raise Failed(f"rank {rank} was not there: {self.finish()}")

    def begun(self, rank, ranks=range(4), seconds=0.3):
        """The process of a rank, once all have joined, and computed for so long since."""
        pid, end = self.rank(rank, ranks), time.monotonic() + LIMIT
        joined = {}  # process: its seconds of computing when it was seen to have joined
        while time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(OSError):
                now = {each: computed(each) for of, each in self.processes() if of >= 0}
                for each in now:
                    if each not in joined and "team" in threads(each):
                        joined[each] = now[each]
                if len(joined) >= len(ranks) and all(
                    now.get(each, 0) - began >= seconds for each, began in joined.items()
                ):
                    return pid
            time.sleep(0.05)
        raise Failed(f"the ranks do not compute: {self.finish()}")

    def finish(self):
        """Exit code, output, errors; nothing that the command started is left."""
        try:
            out, err = self.process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            self.kill()
            out, err = self.process.communicate()
            raise Failed(f"did not end within {LIMIT} s\n{out}{err}") from None
        self.seconds = time.monotonic() - self.began
        end = time.monotonic() + 5
        while self.processes() and time.monotonic() < end:
            time.sleep(0.05)
        left = self.processes()
        self.kill()
        expect(not left, f"left behind: {left}", out, err)
        return self.process.returncode, out, err

    def kill(self):
        for _, pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def run(*words, **environment):
    return Run(words, **environment).finish()


@contextlib.contextmanager
def variables(**more):
    """Of all runs meanwhile."""
    kept = dict(MPI_ENVIRONMENT)
    MPI_ENVIRONMENT.update(more)
    try:
        yield
    finally:
        MPI_ENVIRONMENT.clear()
        MPI_ENVIRONMENT.update(kept)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def verdicts(file, *words):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "verdicts.json"
        code, out, err = run(SPMDRUN, f"--verdicts={path}", *words, ROOT / file)
        expect(path.exists(), f"{file} {words}: exit {code}", out, err)
        return code, out, json.loads(path.read_text())


def expect_missing_plugin(backend, plugin, step):
    """What is missing is named with the next step; nothing is run."""
    with tempfile.TemporaryDirectory() as folder:
        words = [SPMDRUN, f"--backend={backend}", MLP]
        code, _, err = run(*words, SPMD_PLUGIN_DIR=folder)
        expect(code == 2 and f"no {plugin} in {folder}" in err and step in err, "missing", err)
        code, _, err = run(*words, "--skip-unavailable", SPMD_PLUGIN_DIR=folder)
        expect(code == 77, "to be skipped", code, err)


def together(count, words, variables):
    """Processes of the null backend, as a launcher starts them; `words` and `variables` by rank."""
    runs = [
        Run([SPMDRUN, "--backend=null", "--check=off", *words(rank)], **variables(rank))
        for rank in range(count)
    ]
    return [each.finish() for each in runs]


def torchrun(rank, size, port, **more):
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port - 1),
        **more,
    }


def wide_program(folder, ranks):
    file = pathlib.Path(folder) / f"ranks{ranks}.spmd"
    file.write_text(
        f"mesh m {{ dp = {ranks} }}\n%x = input f32[{4 * ranks}@dp]\n"
        "%y = all_gather %x { axis = dp, src = S(0), dst = R }\noutput %y\n"
    )
    return file


@contextlib.contextmanager
def devices():
    """The plug-in of `--backend=nccl` is the one over simulated libraries; its ranks meet in a
    folder."""
    with tempfile.TemporaryDirectory() as folder:
        meeting = pathlib.Path(folder) / "meeting"
        meeting.mkdir()
        (pathlib.Path(folder) / "spmd_nccl.so").symlink_to(DEVICES)
        with variables(SPMD_PLUGIN_DIR=folder, SPMD_FAKE_DEVICES=str(meeting)):
            yield


def fault(
    name, rank, strike, file=MLP, start=("--nproc=4",), codes=(3,), timeout=10, ranks=4, seconds=0.3
):
    """A fault is reported once, with exit code 3, and in time."""
    before, after = ([], start) if start[0].startswith("--") else (start[:-1], start[-1:])
    running = Run(
        [*before, SPMDRUN, *after, f"--timeout={timeout}", "--format=concise", *LONG, file]
    )
    pid = running.begun(rank, range(ranks), seconds)
    struck = time.monotonic()
    strike(pid)
    code, out, err = running.finish()
    said = out + err
    expect(code in codes, f"exit {code}", said)
    expect(said.count("error[") == 1 and f"error[{name}]" in said, "one finding", said)
    expect(re.search(rf"rank {rank}\b", said), "names the rank", said)
    expect(re.search(r"\.spmd:\d+:\d+: error", said), "names the line", said)
    expect(
        re.search(r"step \d+, `%\w+ = [\w.]+`", said) or name == "run-memory",
        "names the step",
        said,
    )
    expect(time.monotonic() - struck < FAULT_SECONDS, "too late", said)
