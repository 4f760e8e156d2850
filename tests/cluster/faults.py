"""How a run ends when one of its ranks is killed, stopped, late, or out of memory."""

import contextlib
import os
import pathlib
import re
import resource
import signal
import tempfile
import time

from harness import (
    LONG,
    MLP,
    SPMDRUN,
    Run,
    devices,
    expect,
    fault,
    run,
    simulated_devices,
    test,
    variables,
    wide_program,
)


@test(fault=True)
def killed():
    for rank in (0, 1, 3):
        fault("run-lost-rank", rank, lambda pid: os.kill(pid, signal.SIGKILL))


@test(fault=True)
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
SOON = 12  # seconds in which so many processes start, run and end where faults are reported in time


def many_processes():
    """Said of a machine where they wait for one another: it is slow, or has other work."""
    with tempfile.TemporaryDirectory() as folder:
        running = Run(
            [SPMDRUN, f"--nproc={MANY}", "--join-timeout=120", wide_program(folder, MANY)]
        )
        running.finish()
    slow = f"{MANY} processes take {running.seconds:.0f} s here: too long to time a fault of one"
    return slow if running.seconds > SOON else ""


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


@test(fault=True, needs=(many_processes,))
def killed_of_many():
    for rank in (0, MANY - 1):
        fault_of_many("run-lost-rank", lambda pid: os.kill(pid, signal.SIGKILL), rank, timeout=60)


@test(fault=True, needs=(many_processes,))
def stopped_of_many():
    fault_of_many("run-timeout", lambda pid: os.kill(pid, signal.SIGSTOP), MANY // 2, timeout=8)


@test(fault=True, needs=(many_processes,))
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


@test(fault=True)
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


@test("devices-killed", fault=True, needs=(simulated_devices,))
def killed_on_devices():
    for rank in (0, 1, 3):
        with devices():
            fault(
                "run-lost-rank",
                rank,
                lambda pid: os.kill(pid, signal.SIGKILL),
                start=("--nproc=4", "--backend=nccl"),
            )


@test("devices-stopped", fault=True, needs=(simulated_devices,))
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


@test(fault=True)
def stopped():
    for rank in (0, 2):
        fault("run-timeout", rank, lambda pid: os.kill(pid, signal.SIGSTOP), timeout=2)


@test(fault=True)
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


@test(fault=True)
def launcher_killed():
    """Ranks do not outlive what started them."""
    for word in ("--backend=null", "--backend=mpi"):
        running = Run([SPMDRUN, "--nproc=4", word, *LONG, MLP])
        running.rank(3)
        os.kill(running.process.pid, signal.SIGKILL)
        running.finish()


@test(fault=True)
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


@test(needs=())
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


@test(fault=True)
def told_to_stop():
    """By a signal: the code says by which, as that of a shell does."""
    for word in ("--backend=null", "--backend=mpi"):
        running = Run([SPMDRUN, "--nproc=4", word, *LONG, MLP])
        running.begun(0)
        running.process.terminate()
        code, out, err = running.finish()
        expect(code == 128 + signal.SIGTERM, f"{word}: exit {code}", out, err)


@test()
def no_memory():
    code, out, err = run(SPMDRUN, "--nproc=4", "--memory-limit=100", MLP)
    expect(code == 2 and (out + err).count("error[run-memory]") == 1, f"exit {code}", out, err)


@test("devices-no-memory", needs=(simulated_devices,))
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


@test(fault=True)
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
