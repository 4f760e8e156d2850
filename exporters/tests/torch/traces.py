"""Helpers that read a trace the way a checker would."""

import json
import pathlib
import subprocess
import sys

SCHEMA = pathlib.Path(__file__).parents[3] / "ir" / "json" / "trace.schema.json"
BUNDLED = pathlib.Path(__file__).parents[3] / "examples"

# Functions of tensor parallelism as scripts write them (Megatron's f and g), over all ranks.
COPY = """
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        dist.all_reduce(g)
        return g
"""
SUM = """
class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g
"""


def schema() -> dict:
    return json.loads(SCHEMA.read_text())


def recorded(folder, *words) -> tuple[dict, str]:
    """What `spmd-trace record WORDS...` writes in a folder as step.spmd.json, and what it says."""
    line = [sys.executable, "-m", "spmd_trace", "record", "-o", "step.spmd.json", *map(str, words)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "step.spmd.json").read_text()), done.stderr


def linted(folder, script: str, *words: str) -> subprocess.CompletedProcess:
    """What `spmd-trace lint` says of a script on four ranks, as JSON."""
    (folder / "train.py").write_text(script)
    line = [sys.executable, "-m", "spmd_trace", "lint", "--world", "4", "--format=json", *words]
    command = [*line, "train.py"]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


def leaves(items) -> list:
    """The operands inside nested lists."""
    found = []
    for item in items:
        found += leaves(item) if isinstance(item, list) else [item]
    return found


def operands(op: dict) -> list[str]:
    """The values that an operation uses."""
    items = leaves([*op.get("in", []), *op.get("kw", {}).values()])
    return [item for item in items if isinstance(item, str)]


def stale_uses(trace: dict) -> list[str]:
    """Uses of a value after it was overwritten; only `alias` may name one."""
    overwritten: set[str] = set()
    problems = []
    for index, op in enumerate(trace["ops"]):
        if op["op"] != "alias":
            problems += [f"op {index} uses {v}" for v in operands(op) if v in overwritten]
        overwritten.update(leaves([op["in"][i] for i in op.get("mut", [])]))
        if "out" in op.get("kw", {}):
            overwritten.add(op["kw"]["out"])
    return problems
