"""JAX scripts for `lint`: a script runs as it is, with as many virtual devices of the CPU as its
mesh wants, and each jitted function with a shard_map in it is recorded when it is first called.
"""

import ast
import json
import os
import pathlib
import subprocess
import sys

from . import process
from .record import say

_DEVICES = "--xla_force_host_platform_device_count="


def is_one(script: str) -> bool:
    """Whether it imports jax, and not torch."""
    try:
        tree = ast.parse(pathlib.Path(script).read_bytes())
    except (OSError, SyntaxError):
        return False
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {one.name.partition(".")[0] for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return "torch" not in names and bool(names & {"jax", "flax", "optax", "equinox", "haiku"})


def recorded(options, folder: pathlib.Path) -> dict | None:
    """The files of the traces (`traces`), and what was `refused`; None after a word about what
    failed."""
    outcome = _run(options, folder, options.world or 8)
    if "wants" in outcome:
        outcome = _run(options, folder, outcome["wants"])
    for what in outcome["refused"]:
        say(f"not recorded: {what}")
    if "error" in outcome:
        say(outcome["error"])
    if outcome["traces"]:
        return outcome | {"traces": [folder / name for name in outcome["traces"]]}
    if not outcome["refused"] and "error" not in outcome:
        say(f"{options.script}: no jitted function with a shard_map in it was called")
    return None


def _run(options, folder: pathlib.Path, devices: int) -> dict:
    flags = [one for one in os.environ.get("XLA_FLAGS", "").split() if not one.startswith(_DEVICES)]
    # What the script prints is not what the command prints.
    child = process.started(
        "spmd_trace.jax.script", [str(folder), options.script, *options.arguments], sys.stderr,
        JAX_PLATFORMS="cpu", XLA_FLAGS=" ".join([*flags, f"{_DEVICES}{devices}"]),
    )  # fmt: skip
    ended = None
    try:
        child.wait(options.timeout)
    except subprocess.TimeoutExpired:
        ended = f"{options.script}: not done after {options.timeout} s"
    finally:
        process.end(child)
    file = folder / "outcome.json"
    if not file.exists():
        return {"traces": [], "refused": [], "error": ended or f"{options.script}: left no trace"}
    outcome = json.loads(file.read_text())
    if ended:  # what was recorded until then is there
        outcome |= {
            "error": ended,
            "traces": sorted(one.name for one in folder.glob("*.spmd.json")),
        }
    return outcome
