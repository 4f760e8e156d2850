"""How ranks find each other, and what keeps them from it."""

import contextlib
import hmac
import os
import pathlib
import shutil
import signal
import socket
import stat
import struct
import subprocess
import tempfile
import threading
import time

from harness import (
    LIMIT,
    LONG,
    MLP,
    ROOT,
    SPMDRUN,
    Run,
    expect,
    expect_missing_plugin,
    free_port,
    run,
    test,
    together,
    torchrun,
    wide_program,
)


@test()
def by_mpirun():
    code, out, err = run(
        "mpirun", "-n", "4", SPMDRUN, "--backend=mpi", ROOT / "tests/cases/run/mlp.spmd"
    )
    expect(code == 0 and out.count("4 ranks") == 1, f"exit {code}", out, err)
    code, _, err = run("mpirun", "-n", "2", SPMDRUN, ROOT / "tests/cases/run/mlp.spmd")
    expect(code == 2 and "add --backend=mpi" in err, f"exit {code}", err)


@test(needs=())
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


@test(needs=())
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


@test(needs=())
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


@test(needs=())
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


@test(needs=())
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


@test(needs=())
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


@test(fault=True, needs=())
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


@test(fault=True, needs=())
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


@test(needs=())
def plan_of_many_ranks():
    """A plan for 16384 ranks whose tensors are alike takes no list per rank: 16 MB, not 4 GB."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "many.spmd"
        file.write_text(
            "trace { mode = local }\nmesh m { dp = 16384 }\n"
            "%x = input f32[16384, 2] V\n%p = input f32[16384, 2] P\n"
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


@test(fault=True)
def many_ranks_by_mpi():
    with tempfile.TemporaryDirectory() as folder:
        code, out, err = run(SPMDRUN, "--nproc=64", "--join-timeout=120", wide_program(folder, 64))
        expect(code == 0 and "64 ranks" in out, f"exit {code}", out, err)


@test()
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


@test(needs=())
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


@test(needs=())
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


@test()
def not_by_mpi():
    """Ranks that MPI does not know of are told how to start."""
    code, _, err = run(SPMDRUN, "--backend=mpi", MLP, **torchrun(1, 4, free_port()))
    expect(code == 2 and "MPI sees 1 rank(s), the launcher started 4" in err, f"exit {code}", err)


@test()
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


@test(needs=())
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


@test(needs=())
def no_plugin():
    expect_missing_plugin("mpi", "spmd_mpi.so", "apt-get install")
    with tempfile.TemporaryDirectory() as folder:
        broken = pathlib.Path(folder) / "spmd_mpi.so"
        broken.write_bytes(b"\x7fELF")
        code, _, err = run(SPMDRUN, "--backend=mpi", MLP, SPMD_PLUGIN_DIR=folder)
        expect(code == 2 and "cannot be opened" in err, "broken", err)
