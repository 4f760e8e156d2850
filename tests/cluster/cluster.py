"""Runs of `spmdrun` whose ranks are processes: what they compute, how they meet, and how they end
when one of them is killed, stopped, late, of another file or of no memory. A skip says why.

usage: cluster.py SPMDRUN [--devices MODULE] [--repeat N] [--only WORD]
"""

import argparse
import contextlib
import hmac
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
import uuid

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
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

SPMDRUN = None
DEVICES = None  # a plug-in whose devices are simulated


class Failed(Exception):
    pass


def expect(condition, what, *shown):
    if not condition:
        raise Failed("\n".join([what, *map(str, shown)]))


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

    def begun(self, rank, ranks=range(4), seconds=0.6):
        """The process of a rank, once all have computed for so long: starting takes half of it."""
        pid, end = self.rank(rank, ranks), time.monotonic() + LIMIT
        tick = 1 / os.sysconf("SC_CLK_TCK")
        while time.monotonic() < end and self.process.poll() is None:
            try:
                fields = [
                    pathlib.Path(f"/proc/{each}/stat").read_text().rsplit(")", 1)[1].split()
                    for of, each in self.processes()
                    if of >= 0
                ]
            except OSError:
                fields = []
            if len(fields) >= len(ranks) and all(
                (int(f[11]) + int(f[12])) * tick >= seconds for f in fields
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


# --- what they compute

# Ranks: programs, those of the tests and of the examples.
PROGRAMS = {
    2: ["tests/cluster/collectives2.spmd"],
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


def verdicts(file, *words):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "verdicts.json"
        code, out, err = run(SPMDRUN, f"--verdicts={path}", *words, ROOT / file)
        expect(path.exists(), f"{file} {words}: exit {code}", out, err)
        return code, out, json.loads(path.read_text())


def same_as_cpu(ranks):
    """Every step and outputs alone, in every tier: verdicts, counts and the bits of all outputs are
    those of the cpu backend."""
    for file in PROGRAMS[ranks]:
        for check in ("--check=all", "--check=outputs"):
            alone = verdicts(file, check)
            together = verdicts(file, check, f"--nproc={ranks}")
            expect(alone[2]["digest"], "outputs have no digest")
            expect(alone == together, f"{file} {check}: not as on cpu", alone, together)


def other_checks():
    for mode in ("outputs", "sampled", "off"):
        alone = verdicts("tests/cases/run/mlp.spmd", f"--check={mode}", "--seed=7")
        together = verdicts("tests/cases/run/mlp.spmd", f"--check={mode}", "--seed=7", "--nproc=4")
        expect(alone == together, f"{mode}: not as on cpu", alone, together)


def refuted():
    """A claim that the data refute is reported once, by rank 0, and is the exit code of all."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "wrong.spmd"
        file.write_text((ROOT / "tests/cases/run/wrong.spmd").read_text())
        alone = run(SPMDRUN, file)
        together = run(SPMDRUN, "--nproc=4", file)
        expect(alone[0] == together[0] == 1, "exit codes", alone, together)
        expect(together[1].count("error[") == 1, "reported once", together[1])


def npy(values):
    """A file of f32."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({len(values)},), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    head = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
    return head + struct.pack(f"<{len(values)}f", *values)


def copies_that_differ():
    """Ranks whose copies of an input differ, in one bit or in the sign of zero, are reported as on
    cpu; what is right besides is judged all the same."""
    text = """trace { mode = global }
mesh m { tp = 4 }
%x = input f32[4] R
%w = input f32[4@tp] { requires_grad = false }
%y = mul %x, %x
output %y
output %w
"""
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "copies.spmd"
        program.write_text(text)
        for third, code in ((1.5, 0), (1.5 + 2**-23, 1), (-1.5, 1)):
            inputs = []
            for rank in range(4):
                file = pathlib.Path(folder) / f"{rank}.npy"
                file.write_bytes(npy([1, 2, third if rank == 3 else 1.5, 0]))
                inputs.append(f"--input=x@{rank}={file}")
            for words in (["--tier=real"], ["--tier=field"], ["--check=sample:1"]):
                alone = run(SPMDRUN, *words, *inputs, program)
                together = run(SPMDRUN, "--nproc=4", *words, *inputs, program)
                expect(alone[0] == code, f"{third}: exit code", alone)
                kept = [re.sub(r" --nproc=4", "", text) for text in together[1:]]
                expect(
                    (alone[0], *alone[1:]) == (together[0], *kept),
                    "not as on cpu",
                    alone,
                    together,
                )


def judged_without_data():
    """What goes to rank 0 does not grow with the tensors, nor with the ranks for each of them."""
    text = """trace {{ mode = global }}
mesh m {{ dp = {ranks} }}
%x = input f32[{rows}@dp, 512]
%w = input f32[512, 512] R
%y = matmul %x, %w
output %y
"""
    each = []
    with tempfile.TemporaryDirectory() as folder:
        for ranks, rows in ((4, 8), (4, 512), (16, 8)):
            program = pathlib.Path(folder) / "rows.spmd"
            program.write_text(text.format(ranks=ranks, rows=rows))
            code, out, err = run(SPMDRUN, f"--nproc={ranks}", "--tier=field", "--timing", program)
            said = re.search(r"(\d+) bytes from other ranks", err)
            expect(code == 0 and said, f"exit {code}", out, err)
            each.append(int(said[1]) / (ranks - 1))
    expect(each[0] == each[1] == each[2] < 200, "bytes of each rank", each)


def traces_of_processes():
    """What each rank writes of its own is what the cpu backend writes of it, and so is the index; a
    folder that cannot be written is one message."""
    for file in ("tests/cases/run/scan_layers.spmd", "examples/fsdp/good.spmd"):
        with tempfile.TemporaryDirectory() as folder:
            one, several = pathlib.Path(folder) / "one", pathlib.Path(folder) / "several"
            alone = run(SPMDRUN, f"--trace-out={one}", "--trace-ranks", ROOT / file)
            together = run(SPMDRUN, "--nproc=4", f"--trace-out={several}", ROOT / file)
            expect(alone == together and alone[0] == 0, file, alone, together)
            index = json.loads((several / "index.json").read_text())["values"]
            wanted = json.loads((one / "index.json").read_text())["values"]
            expect(index == [entry for entry in wanted if "rank" in entry], "the index", index)
            expect({entry["rank"] for entry in index} == set(range(4)), "ranks", index)
            for entry in index:
                same = (one / entry["file"]).read_bytes() == (several / entry["file"]).read_bytes()
                expect(same, "not as on cpu", entry)
    code, _, err = run(SPMDRUN, "--nproc=4", "--trace-out=/proc/none", MLP)
    expect(code == 2 and err.count("/proc/none") == 1, f"exit {code}", err)


def drawn_steps():
    """N steps alone: the same as on cpu, no more than are asked for, and a false claim is found."""
    for file, count in (("tests/cases/run/mlp.spmd", 5), ("examples/fsdp/good.spmd", 3)):
        for words in ([f"--check=sample:{count}"], ["--check=sample:999", "--tier=field"]):
            alone = verdicts(file, *words, "--seed=3")
            together = verdicts(file, *words, "--seed=3", "--nproc=4")
            expect(alone == together, f"{file} {words}: not as on cpu", alone, together)
            every = verdicts(file, "--check=all", "--seed=3", *words[1:])[2]["claims"]
            kept = {(claim["value"], claim["axis"]) for claim in every}
            drawn = {(claim["value"], claim["axis"]) for claim in alone[2]["claims"]}
            expect(drawn and drawn <= kept, "claims", drawn, kept)
            expect((len(drawn) < len(kept)) == (len(words) == 1), "how many", drawn, kept)


def right_kernels():
    """OpenBLAS takes new processors for old ones; what the user chose stays."""
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    if " avx2 " not in flags:
        return
    chosen = run(SPMDRUN, "--version", OPENBLAS_VERBOSE="2")
    expect(chosen[2].split()[-1] != "Prescott", "slow kernels", chosen)
    kept = run(SPMDRUN, "--version", OPENBLAS_VERBOSE="2", OPENBLAS_CORETYPE="Prescott")
    expect(kept[2].split()[-1] == "Prescott", "not what the user chose", kept)


# --- how they meet


def by_mpirun():
    code, out, err = run(
        "mpirun", "-n", "4", SPMDRUN, "--backend=mpi", ROOT / "tests/cases/run/mlp.spmd"
    )
    expect(code == 0 and out.count("4 ranks") == 1, f"exit {code}", out, err)
    code, _, err = run("mpirun", "-n", "2", SPMDRUN, ROOT / "tests/cases/run/mlp.spmd")
    expect(code == 2 and "add --backend=mpi" in err, f"exit {code}", err)


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


MLP = ROOT / "tests/cases/run/mlp.spmd"


def by_variables():
    port = free_port()
    for ended in together(
        4, lambda rank: [MLP], lambda rank: torchrun(rank, 4, port, SPMD_STORE_TOKEN="x")
    ):
        expect(ended[0] == 0, "torchrun", *ended)
    port = free_port()
    for ended in together(
        4,
        lambda rank: [MLP],
        lambda rank: {
            "SLURM_PROCID": str(rank),
            "SLURM_NTASKS": "4",
            "SLURM_LOCALID": str(rank),
            "SLURM_STEP_ID": "0",
            "SLURM_STEP_NODELIST": "localhost",
            "SPMD_STORE_PORT": str(port),
        },
    ):
        expect(ended[0] == 0, "Slurm", *ended)
    code, out, err = run(SPMDRUN, "--backend=null", "--nproc=4", "--check=off", MLP)
    expect(code == 0 and out.count("4 ranks") == 1, f"--nproc: exit {code}", out, err)


def another_token():
    port = free_port()
    ended = together(
        4,
        lambda rank: ["--join-timeout=2", MLP],
        lambda rank: torchrun(rank, 4, port, SPMD_STORE_TOKEN="ab"[rank == 2]),
    )
    expect(all(code == 2 for code, _, _ in ended), "exit codes", ended)
    expect("rank 2 did not join" in ended[0][2], "rank 0", ended[0][2])
    expect("does not admit rank 2" in ended[2][2], "rank 2", ended[2][2])
    port = free_port()
    code, _, err = together(
        1, lambda rank: [MLP], lambda rank: torchrun(0, 4, port, SPMD_STORE_HOST="0.0.0.0")
    )[0]
    expect(code == 2 and "SPMD_STORE_TOKEN" in err, "a token for other hosts is given", err)


def request(token, nonce, rank, size):
    """What a rank that knows the token answers to rank 0."""
    about = struct.pack("=II", rank, size) + os.urandom(16)
    return about + hmac.digest(token.encode(), b"rank" + nonce + about, "sha256")


class Strangers:
    """Connections to rank 0 of processes that are no ranks: idle ones, and such as speak."""

    def __init__(self, port):
        self.port, self.sockets, self.threads, self.answers, self.over = port, [], [], [], False

    def connect(self, patience=LIMIT):
        end = time.monotonic() + patience
        while True:
            try:
                made = socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT)
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)
                continue
            self.sockets.append(made)
            return made

    def idle(self, count):
        for _ in range(count):
            self.connect()

    def garbage(self):
        self.connect().sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 4)
        self.connect().sendall(os.urandom(4096))

    def half(self):
        made = self.connect()
        made.sendall(request("?", self.nonce(made), 1, 4)[:40])
        self.nonce(self.connect())  # takes the greeting, says nothing
        self.connect().shutdown(socket.SHUT_RDWR)

    @staticmethod
    def nonce(made):
        greeting = b""
        while len(greeting) < 24:
            came = made.recv(24 - len(greeting))
            expect(came, "the greeting of rank 0 is cut off")
            greeting += came
        expect(greeting.startswith(b"spmdrun1"), "the greeting of rank 0", greeting)
        return greeting[8:]

    def ask(self, token, rank=1, size=4):
        """The first byte of the answer: 0 where the token is another one."""
        made = self.connect()
        made.sendall(request(token, self.nonce(made), rank, size))
        return made.recv(1)

    def slow(self, seconds):
        """A request with a wrong token, byte by byte."""
        made = self.connect()

        def dribble():
            with contextlib.suppress(OSError):
                for byte in request("?", self.nonce(made), 1, 4):
                    if self.over:
                        return
                    made.sendall(bytes([byte]))
                    time.sleep(seconds)

        self.threads.append(threading.Thread(target=dribble))
        self.threads[-1].start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.over = True
        for thread in self.threads:
            thread.join()
        for each in self.sockets:
            each.close()


def strangers():
    """None of them keeps the ranks waiting, and none gets in."""
    for more in ({"SPMD_STORE_TOKEN": "x"}, {}):
        port = free_port()
        first = Run([SPMDRUN, "--backend=null", "--check=off", MLP], **torchrun(0, 4, port, **more))
        with Strangers(port) as others:
            others.idle(100)
            for _ in range(10):
                others.slow(0.2)
            others.garbage()
            others.half()
            for token in ("", "y"):
                expect(
                    others.ask(token) == b"\0", f"a stranger with token `{token}` is not refused"
                )
            begin = time.monotonic()
            rest = [
                Run(
                    [SPMDRUN, "--backend=null", "--check=off", MLP],
                    **torchrun(rank, 4, port, **more),
                )
                for rank in (1, 2, 3)
            ]
            with contextlib.suppress(OSError):  # rank 0 may have all ranks by now
                for _ in range(50):
                    others.connect(patience=0)
            ended = [each.finish() for each in [first, *rest]]
            expect(all(code == 0 for code, _, _ in ended), "exit codes", ended)
            expect(time.monotonic() - begin < 10, "the ranks were kept waiting", ended)


def token_in_a_file():
    """Ranks on one host that were given no token find that of rank 0, and no other user does."""
    port = free_port()
    first = Run([SPMDRUN, "--backend=null", "--check=off", MLP], **torchrun(0, 4, port))
    folder = pathlib.Path(f"/tmp/spmdrun-{os.geteuid()}")
    with Strangers(port) as others:
        others.idle(1)
        end = time.monotonic() + LIMIT
        while not (files := list(folder.glob(f"store-*-{port}"))) and time.monotonic() < end:
            time.sleep(0.02)
        expect(len(files) == 1, "no token", first)
        expect(
            stat.S_IMODE(folder.stat().st_mode) == 0o700,
            "who may look into the folder",
            folder.stat(),
        )
        expect(
            stat.S_IMODE(files[0].stat().st_mode) == 0o600,
            "who may read the token",
            files[0].stat(),
        )
        token = files[0].read_text()
        expect(len(token) == 32, "the token", token)
        rest = [
            Run([SPMDRUN, "--backend=null", "--check=off", MLP], **torchrun(rank, 4, port))
            for rank in (1, 2)
        ]
        words = b"".join(
            pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
            for each in [first, *rest]
            for _, pid in each.processes()
        )
        expect(words and token.encode() not in words, "the token is on a command line", words)
        expect(others.ask(token, 3, 5) == b"\2", "a rank of another size is not refused")
        rest.append(Run([SPMDRUN, "--backend=null", "--check=off", MLP], **torchrun(3, 4, port)))
        ended = [each.finish() for each in [first, *rest]]
    expect(all(code == 0 for code, _, _ in ended), "exit codes", ended)
    expect(not files[0].exists(), "the token is left behind", files)


def folder_of_another_user():
    """What somebody else may have written is not believed."""
    if os.geteuid() != 0:
        return  # nobody else can be made
    user = 60000 + os.getpid() % 5000
    folder = pathlib.Path(f"/tmp/spmdrun-{user}")
    folder.mkdir(mode=0o777)
    try:
        with tempfile.TemporaryDirectory() as place:
            os.chmod(place, 0o755)
            tool = shutil.copy(SPMDRUN, place)
            program = shutil.copy(MLP, place)
            port = free_port()
            runs = [
                Run(
                    [
                        "setpriv",
                        f"--reuid={user}",
                        "--clear-groups",
                        tool,
                        "--backend=null",
                        "--check=off",
                        "--join-timeout=2",
                        program,
                    ],
                    **torchrun(rank, 2, port),
                )
                for rank in range(2)
            ]
            ended = [each.finish() for each in runs]
        expect(all(code == 2 for code, _, _ in ended), "exit codes", ended)
        expect(
            f"{folder} belongs to another user" in ended[0][2]
            and "SPMD_STORE_TOKEN" in ended[0][2],
            "rank 0",
            ended,
        )
    finally:
        folder.rmdir()


def wide_program(folder, ranks):
    file = pathlib.Path(folder) / f"ranks{ranks}.spmd"
    file.write_text(
        f"mesh m {{ dp = {ranks} }}\n%x = input f32[{4 * ranks}@dp]\n"
        "%y = all_gather %x { axis = dp, src = S(0), dst = R }\noutput %y\n"
    )
    return file


def few_files():
    """A connection for each of 80 ranks where 32 files may be open: the limit is raised, or named
    if it cannot be."""
    with tempfile.TemporaryDirectory() as folder:
        words = [SPMDRUN, "--backend=null", "--check=off", "--nproc=80", wide_program(folder, 80)]
        code, out, err = run("sh", "-c", 'ulimit -Sn 32; exec "$0" "$@"', *words)
        expect(code == 0 and "80 ranks" in out, f"exit {code}", out, err)
        begin = time.monotonic()
        code, out, err = run("sh", "-c", 'ulimit -n 32; exec "$0" "$@"', *words)
        expect(code == 2, f"exit {code}", out, err)
        expect(
            "rank 0 cannot take in rank" in err
            and "Too many open files: a process may have 32 here" in err,
            "the cause",
            err,
        )
        expect(time.monotonic() - begin < 25, "it was waited for the end of the join time-out", err)


def many_ranks():
    """64 processes: nothing hangs, nothing is left."""
    with tempfile.TemporaryDirectory() as folder:
        file = wide_program(folder, 64)
        code, out, err = run(SPMDRUN, "--backend=null", "--check=off", "--nproc=64", file)
        expect(code == 0 and "64 ranks" in out, f"null: exit {code}", out, err)
        running = Run([SPMDRUN, "--backend=null", "--nproc=64", "--timeout=10", *LONG, file])
        os.kill(running.begun(17, range(64), 0.05), signal.SIGKILL)
        code, out, err = running.finish()
        expect(
            code == 3 and (out + err).count("error[run-lost-rank]") == 1,
            f"killed: exit {code}",
            out,
            err,
        )


def a_thousand_ranks():
    """They meet, agree on what they run, and end; all of it takes 4 s on two cores with nothing
    else to do."""
    with tempfile.TemporaryDirectory() as folder:
        code, out, err = run(
            SPMDRUN,
            "--backend=null",
            "--check=off",
            "--nproc=1000",
            "--join-timeout=120",
            wide_program(folder, 1000),
        )
        expect(code == 0 and "1000 ranks" in out, f"exit {code}", out, err)


def plan_of_many_ranks():
    """A plan for 16384 ranks whose tensors are alike takes no list per rank: 16 MB, not 4 GB."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "many.spmd"
        file.write_text(
            "trace { mode = local }\nmesh m { dp = 16384 }\n%x = input f32[16384, 2] V\n%p = input f32[16384, 2] P\n"
            "%a = all_gather %x { axis = dp, src = S(1), dst = R }\n"
            "%b = all_to_all %x { axis = dp, src = S(1), dst = S(0) }\n"
            "%c = reduce_scatter %p { axis = dp, src = P, dst = S(0) }\n"
            "%d = all_reduce %p { axis = dp, src = P, dst = R }\n"
            + "".join(f"output %{name}\n" for name in "abcd")
        )
        started = subprocess.Popen([SPMDRUN, "--plan", file], stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(started.pid, 0)
        started.returncode = os.waitstatus_to_exitcode(status)
        expect(started.returncode == 0, f"exit {started.returncode}")
        expect(used.ru_maxrss < 1_000_000, f"{used.ru_maxrss} KiB")


def many_ranks_by_mpi():
    with tempfile.TemporaryDirectory() as folder:
        code, out, err = run(SPMDRUN, "--nproc=64", "--join-timeout=120", wide_program(folder, 64))
        expect(code == 0 and "64 ranks" in out, f"exit {code}", out, err)


def another_plan():
    port = free_port()
    ended = together(
        4,
        lambda rank: ["--no-backward"] * (rank == 2) + [MLP],
        lambda rank: torchrun(rank, 4, port),
    )
    expect(all(code == 2 for code, _, _ in ended), "exit codes", ended)
    said = "".join(out + err for _, out, err in ended)
    expect(said.count("error[run-plans-differ]") == 1 and "rank 2" in said, "one finding", said)
    port = free_port()
    ended = together(
        4, lambda rank: [f"{MLP}{'.gone' * (rank == 3)}"], lambda rank: torchrun(rank, 4, port)
    )
    expect(all(code == 3 for code, _, _ in ended), "exit codes", ended)
    expect("rank 3 cannot go on" in ended[0][2], "the file of rank 3", ended[0])
    code, out, err = run(SPMDRUN, "--nproc=2", MLP)
    expect(code == 2 and "has 4 ranks, and 2 were started" in err, f"exit {code}", out, err)


def another_file():
    """One op is another: the plans differ, and nothing is sent."""
    with tempfile.TemporaryDirectory() as folder:
        other = pathlib.Path(folder) / "mlp.spmd"
        for old, new in (
            ("gelu", "relu"),
            ("dim = [0, 1], ", "dim = [1, 0], "),
            ("op = avg", "op = sum"),
        ):
            changed = MLP.read_text().replace(old, new)
            expect(changed != MLP.read_text(), f"no {old} in {MLP}")
            other.write_text(changed)
            port = free_port()
            ended = together(
                4, lambda rank: [other if rank == 1 else MLP], lambda rank: torchrun(rank, 4, port)
            )
            said = "".join(out + err for _, out, err in ended)
            expect(
                all(code in (1, 2) for code, _, _ in ended)
                and len({code for code, _, _ in ended}) == 1,
                "exit codes",
                ended,
            )
            expect("rank 1" in said, f"{new}: the rank", said)


def another_version():
    """The tool of one rank calls itself by another number."""
    with tempfile.TemporaryDirectory() as folder:
        other = pathlib.Path(folder) / "spmdrun"
        version = run(SPMDRUN, "--version")[1].split()[1]
        other.write_bytes(
            SPMDRUN.read_bytes().replace(version[:-1].encode(), b"9" + version[1:-1].encode())
        )
        other.chmod(0o755)
        expect(
            run(other, "--version")[1].split()[1] == "9" + version[1:],
            "the version was not changed",
        )
        port = free_port()
        runs = [
            Run(
                [other if rank == 3 else SPMDRUN, "--backend=null", "--check=off", MLP],
                **torchrun(rank, 4, port),
            )
            for rank in range(4)
        ]
        ended = [each.finish() for each in runs]
        said = "".join(out + err for _, out, err in ended)
        expect(all(code == 2 for code, _, _ in ended), "exit codes", ended)
        expect(said.count("error[run-plans-differ]") == 1, "one finding", said)
        expect("rank 3" in said and "the version" in said, "rank and reason", said)


def not_by_mpi():
    """Ranks that MPI does not know of are told how to start."""
    code, _, err = run(SPMDRUN, "--backend=mpi", MLP, **torchrun(1, 4, free_port()))
    expect(code == 2 and "MPI sees 1 rank(s), the launcher started 4" in err, f"exit {code}", err)


def taken_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = together(
            2, lambda rank: ["--join-timeout=2", MLP], lambda rank: torchrun(rank, 2, port)
        )
        expect(all(code == 2 for code, _, _ in ended), "exit codes", ended)
        expect(
            "Address already in use" in ended[0][2] and "SPMD_STORE_PORT" in ended[0][2],
            "rank 0",
            ended,
        )
        expect("is no rank 0 of a run" in ended[1][2], "rank 1", ended)
        code, _, err = run(SPMDRUN, "--nproc=4", MLP, SPMD_STORE_PORT=str(port))
        expect(code == 2 and "Address already in use" in err, f"exit {code}", err)


def unreachable():
    begin = time.monotonic()
    code, _, err = together(
        1, lambda rank: ["--join-timeout=1", MLP], lambda rank: torchrun(1, 4, free_port())
    )[0]
    expect(code == 2 and "cannot reach 127.0.0.1" in err, "nobody listens", err)
    code, _, err = together(
        1,
        lambda rank: ["--join-timeout=1", MLP],
        lambda rank: torchrun(
            1, 4, free_port(), SPMD_STORE_HOST="no.such.host.invalid", SPMD_STORE_TOKEN="x"
        ),
    )[0]
    expect(code == 2 and "no host that is known here" in err, "no such host", err)
    # An address for examples, RFC 5737: nobody answers, or there is no way there.
    code, _, err = together(
        1,
        lambda rank: ["--join-timeout=2", MLP],
        lambda rank: torchrun(1, 4, free_port(), SPMD_STORE_HOST="192.0.2.1", SPMD_STORE_TOKEN="x"),
    )[0]
    expect(code == 2 and "cannot reach 192.0.2.1" in err, "no answer", err)
    expect(time.monotonic() - begin < 20, "too late")


def no_plugin():
    with tempfile.TemporaryDirectory() as folder:
        code, _, err = run(SPMDRUN, "--backend=mpi", MLP, SPMD_PLUGIN_DIR=folder)
        expect(
            code == 2 and f"no spmd_mpi.so in {folder}" in err and "apt-get install" in err,
            "missing",
            err,
        )
        code, _, err = run(
            SPMDRUN, "--backend=mpi", "--skip-unavailable", MLP, SPMD_PLUGIN_DIR=folder
        )
        expect(code == 77, "to be skipped", code, err)
        broken = pathlib.Path(folder) / "spmd_mpi.so"
        broken.write_bytes(b"\x7fELF")
        code, _, err = run(SPMDRUN, "--backend=mpi", MLP, SPMD_PLUGIN_DIR=folder)
        expect(code == 2 and "cannot be opened" in err, "broken", err)


# --- on simulated devices


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


def on_devices(ranks):
    """Every step in the real tier: the verdicts are those of the cpu backend. Bits may differ."""
    for file in PROGRAMS[ranks]:
        alone = verdicts(file, "--check=all", "--tier=real")
        with devices():
            together = verdicts(
                file, "--check=all", "--tier=real", f"--nproc={ranks}", "--backend=nccl"
            )
        for each in (alone[2], together[2]):
            each.pop("digest")
        same = alone[0] == together[0] and alone[2] == together[2]
        expect(same, f"{file}: not as on cpu", alone, together)


def recorded_on_devices():
    """Steps of real models, scaled down: all claims that can be upheld are, forward and
    backward."""
    for name in ("megatron_gpt/sp", "torchtitan/llama3_fsdp_tp_sp"):
        file = f"examples/{name}.spmd.json"
        with devices():
            code, out, notes = verdicts(
                file, "--check=all", "--scale-down", "--nproc=4", "--backend=nccl"
            )
        upheld = re.search(r"^  all +(\d+)", out, re.M)
        expect(code == 0 and upheld and int(upheld[1]) > 2000, f"{file}: exit {code}", out)


def profiled():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "times.json"
        code, out, err = run(SPMDRUN, "--nproc=4", "--check=off", f"--profile={path}", MLP)
        expect(code == 0, f"exit {code}", out, err)
        events = json.loads(path.read_text())["traceEvents"]
        times = {
            rank: [event for event in events if event["pid"] == rank and event["ph"] == "X"]
            for rank in range(4)
        }
        expect(
            all(len(each) == len(times[0]) > 10 for each in times.values()),
            "as many steps on all ranks",
            events,
        )


def benched():
    """Times of all runs; on devices also of bare calls."""
    cpu = run(
        SPMDRUN, "--nproc=2", "--check=off", "--bench=3", ROOT / "tests/cluster/collectives2.spmd"
    )
    expect(
        cpu[0] == 0 and re.search(r"^3 runs: +median [\d.]+ ms, least [\d.]+, most", cpu[1], re.M),
        "mpi",
        *cpu[1:],
    )
    with devices():
        code, out, told = verdicts(
            "tests/cluster/collectives2.spmd", "--bench=3", "--nproc=2", "--backend=nccl"
        )
    seconds = told["seconds"]
    expect(
        code == 0 and len(seconds["runs"]) == len(seconds["bare_calls"]) == 3, "devices", out, told
    )
    expect("of bare calls" in out, "devices", out)


def replayed_on_devices():
    """Several runs of one plan have the same bits recorded, one collective at a time, and as
    ever."""
    for file in ("examples/fsdp/good.spmd", "tests/cases/run/mlp.spmd"):

        def several(*words):
            with devices():
                return verdicts(
                    file, "--seeds=3", "--tier=real", "--nproc=4", "--backend=nccl", *words
                )

        plain = several()
        expect(plain[0] == 0 and plain[2]["digest"], "plain", plain)
        for words in (["--graphs"], ["--deterministic"], ["--graphs", "--deterministic"]):
            found = several(*words)
            expect(found == plain, f"{file} {words}: not as without", found, plain)
    with devices(), variables(SPMD_FAKE_RECORDS_NOT="1"):
        code, out, err = run(SPMDRUN, "--graphs", "--seeds=2", "--nproc=4", "--backend=nccl", MLP)
    expect(
        code == 0
        and err.count("steps are not recorded as graphs: nccl: cudaStreamBeginCapture") == 1,
        f"exit {code}",
        out,
        err,
    )


def refuted_on_devices():
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "wrong.spmd"
        file.write_text((ROOT / "tests/cases/run/wrong.spmd").read_text())
        with devices():
            code, out, err = run(SPMDRUN, "--nproc=4", "--backend=nccl", file)
    expect(code == 1 and out.count("error[") == 1, f"exit {code}", out, err)


def no_devices():
    """What is missing is named with the next step; nothing is run."""
    with tempfile.TemporaryDirectory() as folder:
        code, _, err = run(SPMDRUN, "--backend=nccl", MLP, SPMD_PLUGIN_DIR=folder)
        expect(
            code == 2 and f"no spmd_nccl.so in {folder}" in err and "CUDA toolkit" in err,
            "missing",
            err,
        )
        code, _, err = run(
            SPMDRUN, "--backend=nccl", "--skip-unavailable", MLP, SPMD_PLUGIN_DIR=folder
        )
        expect(code == 77, "to be skipped", code, err)
    for words in (["--tier=field"], ["--dtype-mode=f64"]):
        code, _, err = run(SPMDRUN, "--backend=nccl", *words, MLP)
        expect(code == 2 and "declared element types" in err, f"{words}: exit {code}", err)


# --- on several hosts


class Hosts:
    """Two hosts, as far as their network goes: ranks 0 and 1 on the first, 2 and 3 on the second,
    with devices."""

    def __enter__(self):
        self.names = [f"spmd{uuid.uuid4().hex[:8]}{i}" for i in range(2)]
        try:
            for name in self.names:
                self.ip("netns", "add", name)
            first, second = self.names
            self.ip(
                "link",
                "add",
                "wire",
                "netns",
                first,
                "type",
                "veth",
                "peer",
                "name",
                "wire",
                "netns",
                second,
            )
            for i, name in enumerate(self.names):
                self.ip("-n", name, "address", "add", f"10.0.0.{i + 1}/24", "dev", "wire")
                for link in ("lo", "wire"):
                    self.ip("-n", name, "link", "set", link, "up")
        except Failed:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)

    @staticmethod
    def ip(*words):
        ended = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
        expect(ended.returncode == 0, f"ip {' '.join(words)}", ended.stderr)

    def cut(self):
        self.ip("-n", self.names[0], "link", "set", "wire", "down")

    def start(self, *words):
        port = free_port()
        return [
            Run(
                ["ip", "netns", "exec", self.names[rank // 2], SPMDRUN, "--backend=nccl", *words],
                **torchrun(
                    rank,
                    4,
                    port,
                    MASTER_ADDR="10.0.0.1",
                    LOCAL_RANK=str(rank % 2),
                    LOCAL_WORLD_SIZE="2",
                    SPMD_STORE_TOKEN="x",
                ),
            )
            for rank in range(4)
        ]


def several_hosts():
    with devices(), Hosts() as hosts:
        ended = [each.finish() for each in hosts.start("--check=all", MLP)]
    expect(all(code == 0 for code, _, _ in ended) and "4 ranks" in ended[0][1], "exit codes", ended)


def host_cut_off():
    """The ranks of either host end, each host says why, and rank 0 says which one is gone."""
    with devices(), Hosts() as hosts:
        runs = hosts.start("--timeout=5", "--format=concise", *LONG, MLP)
        for rank, each in enumerate(runs):
            each.begun(rank, [rank])
        struck = time.monotonic()
        hosts.cut()
        ended = [each.finish() for each in runs]
    expect(all(code == 3 for code, _, _ in ended), "exit codes", ended)
    said = ended[0][1] + ended[0][2]
    expect(
        said.count("error[") == 1
        and re.search(r"error\[run-(lost-rank|timeout)\]: .*rank [23]\b", said),
        "one finding",
        said,
    )
    expect(time.monotonic() - struck < FAULT_SECONDS, "too late", ended)


# --- how they end

# Patient at the start: MPI takes its time on a machine with other work.
LONG = ["--check=off", "--tier=real", "--seeds=1000000", "--quiet", "--join-timeout=120"]
FAULT_SECONDS = 30  # on a machine with other work


def fault(
    name, rank, strike, file=MLP, start=("--nproc=4",), codes=(3,), timeout=10, ranks=4, seconds=0.6
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


def killed():
    for rank in (0, 1, 3):
        fault("run-lost-rank", rank, lambda pid: os.kill(pid, signal.SIGKILL))


def killed_under_mpirun():
    """mpirun ends the others at once, and may have a code of its own for it."""
    for rank in (0, 2):
        fault(
            "run-lost-rank",
            rank,
            lambda pid: os.kill(pid, signal.SIGKILL),
            start=("mpirun", "-n", "4", "--backend=mpi"),
            codes=(3, 128 + signal.SIGKILL),
        )


MANY = 64


def fault_of_many(name, strike, rank, **more):
    """Of so many processes: all end, and one says why."""
    with tempfile.TemporaryDirectory() as folder:
        fault(
            name,
            rank,
            strike,
            file=wide_program(folder, MANY),
            start=(f"--nproc={MANY}",),
            ranks=MANY,
            seconds=0.1,
            **more,
        )


def killed_of_many():
    for rank in (0, MANY - 1):
        fault_of_many("run-lost-rank", lambda pid: os.kill(pid, signal.SIGKILL), rank, timeout=60)


def stopped_of_many():
    fault_of_many("run-timeout", lambda pid: os.kill(pid, signal.SIGSTOP), MANY // 2, timeout=8)


def mpirun_killed_of_many():
    """One line says so; so it does where what started mpirun is gone, and no rank is left."""
    with tempfile.TemporaryDirectory() as folder:
        for whole in (False, True):
            running = Run([SPMDRUN, f"--nproc={MANY}", *LONG, wide_program(folder, MANY)])
            running.begun(0, range(MANY), 0.1)
            tool = running.process.pid
            children = pathlib.Path(f"/proc/{tool}/task/{tool}/children").read_text().split()
            os.kill(tool if whole else int(children[0]), signal.SIGKILL)
            code, out, err = running.finish()
            expect(code == (-signal.SIGKILL if whole else 5), f"exit {code}", out, err)
            expect(whole or err.count("\n") == 1, "one line", out, err)


def out_of_memory():
    """Of one rank, in the midst of the run: no more of it from then on."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "wide.spmd"
        file.write_text(
            "mesh m { dp = 4 }\n%x = input f32[4096@dp, 64] R\n%y = gelu %x\n%s = square %y\n"
            "%z = all_gather %s { axis = dp, src = S(0), dst = R }\noutput %z\n"
        )

        def strike(pid):
            pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[0])
            less = pages * resource.getpagesize() - (
                4 << 20
            )  # it may have had the most that it needs
            resource.prlimit(pid, resource.RLIMIT_AS, (less, less))

        # Each tensor is asked for anew.
        with variables(MALLOC_MMAP_THRESHOLD_="65536", MALLOC_TOP_PAD_="0"):
            fault("run-memory", 2, strike, file)


def killed_on_devices():
    for rank in (0, 1, 3):
        with devices():
            fault(
                "run-lost-rank",
                rank,
                lambda pid: os.kill(pid, signal.SIGKILL),
                start=("--nproc=4", "--backend=nccl"),
            )


def stopped_on_devices():
    for rank in (0, 2):
        with devices():
            fault(
                "run-timeout",
                rank,
                lambda pid: os.kill(pid, signal.SIGSTOP),
                timeout=2,
                start=("--nproc=4", "--backend=nccl"),
            )


def stopped():
    for rank in (0, 2):
        fault("run-timeout", rank, lambda pid: os.kill(pid, signal.SIGSTOP), timeout=2)


def slow():
    """A rank that stands still for less than the time-out is waited for."""
    running = Run(
        [
            SPMDRUN,
            "--nproc=4",
            "--timeout=30",
            "--join-timeout=120",
            "--check=off",
            "--tier=real",
            "--seeds=300",
            MLP,
        ]
    )
    pid = running.rank(2)
    time.sleep(0.3)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(1.5)
        os.kill(pid, signal.SIGCONT)
    code, out, err = running.finish()
    expect(code == 0, f"exit {code}", out, err)


def launcher_killed():
    """Ranks do not outlive what started them."""
    for word in ("--backend=null", "--backend=mpi"):
        running = Run([SPMDRUN, "--nproc=4", word, *LONG, MLP])
        running.rank(3)
        os.kill(running.process.pid, signal.SIGKILL)
        running.finish()


def mpirun_fails():
    """Of its own, or because it is told to stop: nothing is known of the program, and that has a
    code of its own."""
    with variables(OMPI_MCA_rmaps_base_mapping_policy="no-such-policy"):
        code, out, err = run(SPMDRUN, "--nproc=4", MLP)
    expect(
        code == 5 and "mpirun ended with code" in err and "4 of 4 ranks" in err,
        f"exit {code}",
        out,
        err,
    )
    for rank, sent in ((None, signal.SIGTERM), (None, signal.SIGKILL), (2, signal.SIGTERM)):
        running = Run([SPMDRUN, "--nproc=4", *LONG, MLP])
        pid = running.begun(0)
        if rank is None:
            pid = int(
                pathlib.Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children")
                .read_text()
                .split()[0]
            )
        else:
            pid = running.rank(rank)
        os.kill(pid, sent)
        code, out, err = running.finish()
        expect(code == (5 if rank is None else 3), f"{sent}: exit {code}", out, err)
    with tempfile.TemporaryDirectory() as folder:
        for more, wanted in (((), 2), (("--skip-unavailable",), 77)):
            code, _, err = run(SPMDRUN, "--nproc=4", *more, MLP, PATH=folder)
            expect(code == wanted and "cannot start mpirun" in err, f"exit {code}", err)


def no_ranks():
    """A launcher that ends without having started a rank, or starts none and does not end."""
    for does, said in (
        ("exit 0", "mpirun ended with code 0 before 4 of 4 ranks"),
        ("exit 1", "mpirun ended with code 1 before 4 of 4 ranks"),
        ("exec /bin/sleep 1000", "mpirun started no rank within 2 s"),
    ):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "mpirun"
            script.write_text(f"#!/bin/sh\n{does}\n")
            script.chmod(0o755)
            code, out, err = run(SPMDRUN, "--nproc=4", "--join-timeout=2", MLP, PATH=folder)
        expect(code == 5 and said in err, f"{does}: exit {code}", out, err)


def told_to_stop():
    """By a signal: the code says by which, as that of a shell does."""
    for word in ("--backend=null", "--backend=mpi"):
        running = Run([SPMDRUN, "--nproc=4", word, *LONG, MLP])
        running.begun(0)
        running.process.terminate()
        code, out, err = running.finish()
        expect(code == 128 + signal.SIGTERM, f"{word}: exit {code}", out, err)


def no_memory():
    code, out, err = run(SPMDRUN, "--nproc=4", "--memory-limit=100", MLP)
    expect(code == 2 and (out + err).count("error[run-memory]") == 1, f"exit {code}", out, err)


def no_memory_on_devices():
    """A plan that is too large for one device is a finding that names its rank, before anything is
    run."""
    for rank in (0, 2):
        with devices(), variables(SPMD_FAKE_MEMORY=f"{rank}:2048"):
            code, out, err = run(SPMDRUN, "--nproc=4", "--backend=nccl", MLP)
        said = out + err
        expect(code == 2 and said.count("error[run-memory]") == 1, f"exit {code}", out, err)
        expect(
            re.search(rf"needs \S+ \S+ on rank {rank}, and 2\.0 KiB may be used; largest: %", said),
            "who and how much",
            said,
        )


def no_half_files():
    """A rank that ends before it has joined; mpirun may hang then."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "verdicts.json"
        running = Run(
            [
                SPMDRUN,
                "--nproc=4",
                "--timeout=2",
                *LONG,
                "--join-timeout=5",
                f"--verdicts={path}",
                MLP,
            ]
        )
        os.kill(running.rank(1), signal.SIGKILL)
        running.finish()
        expect(not list(pathlib.Path(folder).iterdir()), "half a file")


TESTS = {
    "same-as-cpu-2": lambda: same_as_cpu(2),
    "same-as-cpu-4": lambda: same_as_cpu(4),
    "same-as-cpu-8": lambda: same_as_cpu(8),
    "other-checks": other_checks,
    "refuted": refuted,
    "copies-that-differ": copies_that_differ,
    "judged-without-data": judged_without_data,
    "traces-of-processes": traces_of_processes,
    "drawn-steps": drawn_steps,
    "right-kernels": right_kernels,
    "by-mpirun": by_mpirun,
    "by-variables": by_variables,
    "another-token": another_token,
    "strangers": strangers,
    "token-in-a-file": token_in_a_file,
    "folder-of-another-user": folder_of_another_user,
    "few-files": few_files,
    "many-ranks": many_ranks,
    "a-thousand-ranks": a_thousand_ranks,
    "plan-of-many-ranks": plan_of_many_ranks,
    "many-ranks-by-mpi": many_ranks_by_mpi,
    "mpirun-fails": mpirun_fails,
    "no-ranks": no_ranks,
    "told-to-stop": told_to_stop,
    "another-plan": another_plan,
    "another-file": another_file,
    "another-version": another_version,
    "not-by-mpi": not_by_mpi,
    "taken-port": taken_port,
    "unreachable": unreachable,
    "no-plugin": no_plugin,
    "devices-2": lambda: on_devices(2),
    "devices-4": lambda: on_devices(4),
    "devices-8": lambda: on_devices(8),
    "devices-refuted": refuted_on_devices,
    "devices-replayed": replayed_on_devices,
    "devices-recorded": recorded_on_devices,
    "profiled": profiled,
    "benched": benched,
    "no-devices": no_devices,
    "several-hosts": several_hosts,
    "host-cut-off": host_cut_off,
    "devices-killed": killed_on_devices,
    "devices-stopped": stopped_on_devices,
    "killed": killed,
    "killed-under-mpirun": killed_under_mpirun,
    "killed-of-many": killed_of_many,
    "stopped-of-many": stopped_of_many,
    "mpirun-killed-of-many": mpirun_killed_of_many,
    "out-of-memory": out_of_memory,
    "stopped": stopped,
    "slow": slow,
    "launcher-killed": launcher_killed,
    "no-memory": no_memory,
    "devices-no-memory": no_memory_on_devices,
    "no-half-files": no_half_files,
}
FAULTS = {
    "a-thousand-ranks",
    "host-cut-off",
    "devices-killed",
    "devices-stopped",
    "killed",
    "killed-under-mpirun",
    "killed-of-many",
    "stopped-of-many",
    "mpirun-killed-of-many",
    "out-of-memory",
    "stopped",
    "slow",
    "launcher-killed",
    "mpirun-fails",
    "told-to-stop",
    "many-ranks",
    "many-ranks-by-mpi",
    "no-half-files",
}

WITHOUT_MPI = {
    "right-kernels",
    "by-variables",
    "another-token",
    "strangers",
    "token-in-a-file",
    "folder-of-another-user",
    "few-files",
    "many-ranks",
    "a-thousand-ranks",
    "plan-of-many-ranks",
    "no-ranks",
    "another-file",
    "another-version",
    "unreachable",
    "no-plugin",
    "no-devices",
}
SIMULATED = {
    "devices-2",
    "devices-4",
    "devices-8",
    "devices-refuted",
    "devices-recorded",
    "devices-killed",
    "devices-stopped",
    "devices-no-memory",
    "devices-replayed",
    "several-hosts",
    "host-cut-off",
}
HOSTS = {"several-hosts", "host-cut-off"}


def no_network_of_its_own():
    """Why no host can be together here."""
    if not shutil.which("ip"):
        return "no `ip` here (iproute2)"
    name = f"spmd{uuid.uuid4().hex[:8]}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
    return f"no networks can be made here: {made.stderr.strip()}" if made.returncode else ""


def main():
    global SPMDRUN, DEVICES
    arguments = argparse.ArgumentParser()
    arguments.add_argument("spmdrun", type=pathlib.Path)
    arguments.add_argument(
        "--devices", type=pathlib.Path, help="the plug-in whose devices are simulated"
    )
    arguments.add_argument("--repeat", type=int, default=1, help="of each fault")
    arguments.add_argument("--only", default="", help="tests whose name has this word")
    options = arguments.parse_args()
    SPMDRUN = options.spmdrun.resolve()
    DEVICES = options.devices and options.devices.resolve()
    reason = (
        "built without MPI (libopenmpi-dev, openmpi-bin)"
        if not (SPMDRUN.parent / "spmd_mpi.so").exists()
        else "no mpirun here"
        if not shutil.which("mpirun")
        else ""
    )
    sanitized = b"__asan_init" in SPMDRUN.read_bytes()
    failed = passed = skipped = 0
    for name, test in TESTS.items():
        if options.only not in name:
            continue
        why = reason if name not in WITHOUT_MPI | SIMULATED else ""
        if name in SIMULATED and not DEVICES:
            why = "this build has no plug-in with simulated devices (long_tests)"
        if name in HOSTS and not why:
            why = no_network_of_its_own()
        if not why and sanitized and name in FAULTS:
            why = "the sanitizers take memory and time of their own"
        if why:
            skipped += 1
            print(f"{name}: skipped: {why}")
            continue
        for _ in range(options.repeat if name in FAULTS else 1):
            begin = time.monotonic()
            try:
                test()
                passed += 1
                print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)
            except Failed as failure:
                failed += 1
                print(f"{name}: FAILED: {failure}", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
