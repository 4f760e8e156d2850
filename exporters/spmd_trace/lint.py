"""Records one step of a training script, as `record` does, and checks it: one command from script
to findings.

spmd-trace lint train.py --batch-size 4
spmd-trace lint --world 16 --format=json train.py

Options of `spmdlint check` may stand before the script, with their values after `=`. The exit code
is that of `spmdlint check`; 3 if the script cannot be recorded, 4 if nothing was found and a part
was not recorded.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

from . import checker, jaxscript, record
from .recording import FAILED, IN_PART, keep, missing_file, say


def add_options(parser: argparse.ArgumentParser) -> None:
    record.add_script_options(parser)
    parser.add_argument(
        "-o", "--output", type=pathlib.Path, metavar="FILE", help="keep the recording in this file"
    )


def run(parser: argparse.ArgumentParser, options, more=()) -> int:
    program = checker.find()
    if program is None:
        print(f"spmd-trace: {checker.missing()}", file=sys.stderr)
        return 2
    if reason := missing_file(options, options.output):
        say(reason)
        return FAILED
    if not options.module and jaxscript.is_one(options.script):
        return _of_jax(program, options, more)
    with tempfile.TemporaryDirectory() as folder:
        name = pathlib.Path(options.script).stem.rpartition(".")[2] if options.module else None
        trace = pathlib.Path(folder) / f"{name or pathlib.Path(options.script).stem}.spmd.json"
        done = record.record(parser, options, trace)
        if done is None:
            return FAILED
        if options.output is not None:
            keep(trace, options.output)
        root = os.getcwd() if options.module else os.path.dirname(os.path.abspath(options.script))
        named = [f"--name={options.script}"]
        return _checked(program, [*named, *more], root, [trace], done["refused"])


def _of_jax(program: str, options, more) -> int:
    with tempfile.TemporaryDirectory() as folder:
        done = jaxscript.recorded(options, pathlib.Path(folder))
        if done is None:
            return FAILED
        if options.output is not None:
            jaxscript.kept(done["traces"], options.output)
        root = os.path.dirname(os.path.abspath(options.script))
        missing = done["refused"] or "error" in done
        functions = [one.name.removesuffix(".spmd.json") for one in done["traces"]]
        several = len(functions) > 1
        named = [f"--name={options.script}" + f" ({one})" * several for one in functions]
        return _checked(program, [*named, *more], root, done["traces"], missing)


def _checked(program: str, more, root: str, traces: list[pathlib.Path], missing) -> int:
    """What the checker ends with; `missing`: something was not recorded."""
    given = [one for one in more if one.startswith("--source-root")]
    words = [*more, *([] if given else [f"--source-root={root}"])]
    code = subprocess.run([program, "check", *words, *map(str, traces)], check=False).returncode
    return IN_PART if code == 0 and missing else code
