"""Records one step of a training script, which runs as it is: no GPU, no other processes, no change to it.

spmd-trace record train.py --batch-size 4
spmd-trace record --nproc-per-node 8 --nnodes 2 -o step.spmd.json train.py
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

FAILED = 3


def add_options(parser: argparse.ArgumentParser) -> None:
    add_script_options(parser)
    parser.add_argument("-o", "--output", type=pathlib.Path, metavar="FILE", default="step.spmd.json")


def add_script_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--world", type=int, metavar="N", help="ranks, all on one host (8)")
    parser.add_argument("--nproc-per-node", type=int, metavar="K", help="ranks on each host")
    parser.add_argument("--nnodes", type=int, metavar="M", help="hosts (1)")
    parser.add_argument("--rank", type=int, default=0, metavar="N", help="the rank that is recorded (0)")
    parser.add_argument("--step", type=int, default=2, metavar="N", help="the step, from 1 (2)")
    parser.add_argument("--timeout", type=int, default=600, metavar="S", help="seconds to wait (600)")
    parser.add_argument("-m", "--module", action="store_true", help="the script is a module's name")
    parser.add_argument("script", help="the training script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")


def run(parser: argparse.ArgumentParser, options) -> int:
    ops = record(parser, options, options.output)
    if ops is None:
        return FAILED
    print(f"{options.output}: {ops} operations")
    return 0


def _settings(parser: argparse.ArgumentParser, options) -> dict:
    if options.world is not None and (options.nproc_per_node or options.nnodes):
        parser.error("--world stands alone, or --nproc-per-node with --nnodes")
    per_node = options.world if options.world is not None else options.nproc_per_node or 8
    nodes = options.nnodes or 1
    if per_node < 1 or nodes < 1 or options.step < 1 or options.timeout < 1:
        parser.error("ranks, hosts, steps and seconds are counted from 1")
    if not 0 <= options.rank < per_node * nodes:
        parser.error(f"--rank {options.rank}: there are {per_node * nodes} ranks")
    words = {name: getattr(options, name) for name in ("script", "arguments", "rank", "step", "module")}
    return words | {"per_node": per_node, "nodes": nodes}


def record(parser: argparse.ArgumentParser, options, output: pathlib.Path) -> int | None:
    """Records into a file; the number of operations, or None after a word about what failed."""
    settings = _settings(parser, options)
    if not options.module and not os.path.isfile(options.script):
        return _failed(f"{options.script}: no such file")
    if not output.resolve().parent.is_dir():
        return _failed(f"{output}: no such folder")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "settings.json").write_text(json.dumps(settings | {"folder": folder}))
        error = _run_child(path, options)
        outcome = path / "outcome.json"
        if error is None:
            told = json.loads(outcome.read_text())
            error = told.get("error")
        if error is not None:
            return _failed(error)
        # Copied beside its place and then renamed: nothing half-written is ever there.
        partial = output.with_name(output.name + ".partial")
        shutil.copyfile(path / "step.spmd.json", partial)
        partial.replace(output)
        return told["ops"]


def _failed(reason: str) -> None:
    print(f"spmd-trace: {reason}", file=sys.stderr)


def _run_child(folder: pathlib.Path, options) -> str | None:
    """Runs the script in a process of its own; what kept it from an outcome."""
    command = [sys.executable, "-m", "spmd_trace.torch.script.child", str(folder / "settings.json")]
    package = str(pathlib.Path(__file__).parents[1])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    # What the script prints is not what the command prints.
    child = subprocess.Popen(command, env=environment, stdout=sys.stderr, start_new_session=True)
    try:
        code = child.wait(options.timeout)
    except subprocess.TimeoutExpired:
        return f"{_hanging_at(child, folder)}the script is not done after {options.timeout} s"
    finally:
        _kill(child)
    if (folder / "outcome.json").exists():
        return None
    ended = f"signal {-code}" if code < 0 else f"code {code}"
    return f"{options.script}: the process of the script ended with {ended}, and left no trace"


def _kill(child: subprocess.Popen) -> None:
    """Ends the script and what it has started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def _hanging_at(child: subprocess.Popen, folder: pathlib.Path) -> str:
    """Where the script is, innermost first."""
    from .places import SITE, is_ours

    os.kill(child.pid, signal.SIGUSR1)
    try:
        child.wait(2)
    except subprocess.TimeoutExpired:
        pass
    standard = os.path.dirname(os.__file__) + os.sep
    for file, line in re.findall(r'File "([^"]+)", line (\d+)', (folder / "stacks.txt").read_text()):
        if not is_ours(file) and not file.startswith((*SITE, standard, "<")):
            return f"{os.path.basename(file)}:{line}: "
    return ""
