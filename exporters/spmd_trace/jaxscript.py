"""JAX scripts for `lint`: a script runs as it is, with as many virtual devices of the CPU as its
mesh wants, and each jitted function with a shard_map in it is recorded when it is first called, and
when its arguments first have other shapes.
"""

import ast
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from .document import text
from .recording import FAILED, IN_PART, keep, missing_file, say, unfit
from .runs import divergence, process

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


def record(options, output: pathlib.Path) -> int:
    """Writes the trace of the function that the script calls into a file. Those of several stand
    beside it, with their names: `step.train_step.spmd.json`. The exit code.
    """
    if reason := missing_file(options, output):
        say(reason)
        return FAILED
    with tempfile.TemporaryDirectory() as folder:
        done = recorded(options, pathlib.Path(folder))
        if done is None:
            return FAILED
        for trace, to in kept(done["traces"], output):
            ops = json.loads(trace.read_text(encoding="utf-8"))["op_count"]
            print(f"{to}: {ops} operations")
        return IN_PART if done["refused"] or "error" in done else 0


def kept(traces: list[pathlib.Path], output: pathlib.Path) -> list[tuple]:
    """Each trace with the file that it was written to."""
    suffix = "".join(output.suffixes)
    files = []
    for trace in traces:
        name = trace.name.removesuffix(".spmd.json").replace("<lambda>", "lambda")
        named = f"{output.name.removesuffix(suffix)}.{name}{suffix}"
        files.append((trace, output if len(traces) == 1 else output.with_name(named)))
        keep(*files[-1])
    return files


def recorded(options, folder: pathlib.Path) -> dict | None:
    """The files of the traces (`traces`), and what was `refused`; None after a word about what
    failed."""
    if reason := unfit("jax"):
        say(reason)
        return None
    how, devices = "keep" if options.confirm else "record", options.world or 8
    outcome = _run(options, folder, how, devices)
    if "wants" in outcome:
        devices = outcome["wants"]
        outcome = _run(options, folder, how, devices)
    for what in outcome["refused"]:
        say(f"not recorded: {what}")
    if outcome["traces"] and outcome.get("missing"):
        say(outcome["missing"])
    for name in outcome.get("passed_over", []):
        say(f"{name}: it is called with many shapes of arguments; calls with the first ones are "
            "recorded")  # fmt: skip
    if "error" in outcome:
        say(outcome["error"])
    if outcome["traces"]:
        if options.confirm:
            _confirm(options, folder, devices, outcome)
        return outcome | {"traces": [folder / name for name in outcome["traces"]]}
    if not outcome["refused"] and "error" not in outcome:
        text = f"{options.script}: no jitted function with a shard_map in it was called"
        if names := sorted(set(outcome.get("unsharded", []))):
            listed = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
            text += f" ({listed}: without one, shardings do not change what is computed)"
        say(text)
    return None


def _confirm(options, folder: pathlib.Path, devices: int, outcome: dict) -> None:
    """Makes the calls again on one device, and writes into the traces what differs."""
    unlike: dict[str, list] = {}
    reasons = dict(outcome.get("unkept", {}))
    names = {one.removesuffix(".spmd.json") for one in outcome["traces"]}
    open_, agree = names - set(reasons), set()
    # First with other numbers; as it is, where it does not run then or makes something else.
    for how, there in (("one", 1), ("cut", devices)):
        if not open_:
            break
        (folder / "one.json").unlink(missing_ok=True)
        run = _run(options, folder, how, there, "one.json")
        for name in sorted(open_):
            if name in run.get("compared", {}):
                if found := run["compared"][name]:
                    unlike.setdefault(name, found)
                else:
                    agree.add(name)
            else:
                reasons.setdefault(name, run.get("uncompared", {}).get(name) or run.get("error")
                                   or "it is not called with one device")  # fmt: skip
        open_ -= agree
    for name in sorted(names - agree):
        if name in unlike:
            _state(folder, name, unlike[name])
        else:
            say(f"{name}: not compared with one device: {reasons[name]}")
    say(f"{len(agree) + len(unlike.keys() - agree)} of {len(names)} functions were compared with "
        "one device")  # fmt: skip


def _state(folder: pathlib.Path, name: str, found: list[dict]) -> None:
    """Writes what differs into a trace, as its first operations."""
    trace = folder / f"{name}.spmd.json"
    place = json.loads((folder / f"{name}.place").read_text())
    document = json.loads(trace.read_text(encoding="utf-8"))
    loc = {} if place is None else {"loc": divergence.location(document, place, None)}
    document["ops"][:0] = [{"op": "unlike", "attrs": row} | loc for row in found]
    document["op_count"] += len(found)
    trace.write_text(text(document), encoding="utf-8")


def _run(options, folder: pathlib.Path, how: str, devices: int, left="outcome.json") -> dict:
    """What the script leaves."""
    flags = [one for one in os.environ.get("XLA_FLAGS", "").split() if not one.startswith(_DEVICES)]
    # What the script prints is not what the command prints.
    child = process.started(
        "spmd_trace.jax.runs.script", [str(folder), how, options.script, *options.arguments],
        sys.stderr if how in ("keep", "record") else subprocess.DEVNULL,
        JAX_PLATFORMS="cpu", XLA_FLAGS=" ".join([*flags, f"{_DEVICES}{devices}"]),
    )  # fmt: skip
    ended = None
    try:
        child.wait(options.timeout)
    except subprocess.TimeoutExpired:
        ended = f"{options.script}: not done after {options.timeout} s"
    finally:
        process.end(child)
    file = folder / left
    if not file.exists():
        return {"traces": [], "refused": [], "error": ended or f"{options.script}: left no trace"}
    outcome = json.loads(file.read_text())
    if ended:  # what was recorded until then is there
        outcome |= {
            "error": ended,
            "traces": sorted(one.name for one in folder.glob("*.spmd.json")),
        }
    return outcome
