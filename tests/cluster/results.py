"""What ranks that are processes compute, and what is said of it."""

import json
import pathlib
import re
import struct
import tempfile

from harness import MLP, PROGRAMS, ROOT, SPMDRUN, expect, run, test, verdicts


@test("same-as-cpu-2", 2)
@test("same-as-cpu-4", 4)
@test("same-as-cpu-8", 8)
def same_as_cpu(ranks):
    """Every step and outputs alone, in every tier: verdicts, counts and the bits of all outputs are
    those of the cpu backend."""
    for file in PROGRAMS[ranks]:
        for check in ("--check=all", "--check=outputs"):
            alone = verdicts(file, check)
            together = verdicts(file, check, f"--nproc={ranks}")
            expect(alone[2]["digest"], "outputs have no digest")
            expect(alone == together, f"{file} {check}: not as on cpu", alone, together)


@test()
def other_checks():
    for mode in ("outputs", "sampled", "off"):
        alone = verdicts("tests/cases/run/mlp.spmd", f"--check={mode}", "--seed=7")
        together = verdicts("tests/cases/run/mlp.spmd", f"--check={mode}", "--seed=7", "--nproc=4")
        expect(alone == together, f"{mode}: not as on cpu", alone, together)


@test()
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


@test()
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


@test()
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


@test()
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


@test()
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


@test(needs=())
def right_kernels():
    """OpenBLAS takes new processors for old ones; what the user chose stays."""
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    if " avx2 " not in flags:
        return
    chosen = run(SPMDRUN, "--version", OPENBLAS_VERBOSE="2")
    expect(chosen[2].split()[-1] != "Prescott", "slow kernels", chosen)
    kept = run(SPMDRUN, "--version", OPENBLAS_VERBOSE="2", OPENBLAS_CORETYPE="Prescott")
    expect(kept[2].split()[-1] == "Prescott", "not what the user chose", kept)
