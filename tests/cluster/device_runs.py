"""Runs on simulated devices."""

import json
import pathlib
import re
import tempfile

from harness import (
    MLP,
    PROGRAMS,
    ROOT,
    SPMDRUN,
    devices,
    expect,
    expect_missing_plugin,
    run,
    simulated_devices,
    test,
    variables,
    verdicts,
)


@test("devices-2", 2, needs=(simulated_devices,))
@test("devices-4", 4, needs=(simulated_devices,))
@test("devices-8", 8, needs=(simulated_devices,))
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


@test("devices-recorded", needs=(simulated_devices,))
def recorded_on_devices():
    """Steps of real models, scaled down: all claims that can be upheld are, forward and
    backward."""
    for name in ("megatron_gpt/sp", "torchtitan/llama3_fsdp_tp_sp"):
        file = f"examples/{name}.spmd.json"
        with devices():
            code, out, notes = verdicts(
                file, "--check=all", "--scale-down", "--nproc=4", "--backend=nccl"
            )
        upheld = re.search(r"^  all +(\d+)", out, re.MULTILINE)
        expect(code == 0 and upheld and int(upheld[1]) > 2000, f"{file}: exit {code}", out)


@test()
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


@test()
def benched():
    """Times of all runs; on devices also of bare calls."""
    cpu = run(
        SPMDRUN, "--nproc=2", "--check=off", "--bench=3", ROOT / "tests/cluster/collectives2.spmd"
    )
    expect(
        cpu[0] == 0
        and re.search(r"^3 runs: +median [\d.]+ ms, least [\d.]+, most", cpu[1], re.MULTILINE),
        "mpi",
        *cpu[1:],
    )
    with devices():
        code, out, report = verdicts(
            "tests/cluster/collectives2.spmd", "--bench=3", "--nproc=2", "--backend=nccl"
        )
    seconds = report["seconds"]
    expect(
        code == 0 and len(seconds["runs"]) == len(seconds["bare_calls"]) == 3,
        "devices",
        out,
        report,
    )
    expect("of bare calls" in out, "devices", out)


@test("devices-replayed", needs=(simulated_devices,))
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


@test("devices-refuted", needs=(simulated_devices,))
def refuted_on_devices():
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "wrong.spmd"
        file.write_text((ROOT / "tests/cases/run/wrong.spmd").read_text())
        with devices():
            code, out, err = run(SPMDRUN, "--nproc=4", "--backend=nccl", file)
    expect(code == 1 and out.count("error[") == 1, f"exit {code}", out, err)


@test(needs=())
def no_devices():
    expect_missing_plugin("nccl", "spmd_nccl.so", "CUDA toolkit")
    for words in (["--tier=field"], ["--dtype-mode=f64"]):
        code, _, err = run(SPMDRUN, "--backend=nccl", *words, MLP)
        expect(code == 2 and "declared element types" in err, f"{words}: exit {code}", err)
