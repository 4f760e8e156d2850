"""Records one step of a training script, as `record` does, and checks it: one command from script to findings.

spmd-trace lint train.py --batch-size 4
spmd-trace lint --world 16 --format=json train.py

Options of `spmdlint check` may stand before the script, with their values after `=`. The exit code is that of
`spmdlint check`; 3 if the script cannot be recorded, 4 if nothing was found and a part was not
recorded.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

from . import checker, record

def add_options(parser: argparse.ArgumentParser) -> None:
    record.add_script_options(parser)


def run(parser: argparse.ArgumentParser, options, more=()) -> int:
    program = checker.find()
    if program is None:
        print(f"spmd-trace: {checker.MISSING}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        name = pathlib.Path(options.script).stem.rpartition(".")[2] if options.module else None
        trace = pathlib.Path(folder) / f"{name or pathlib.Path(options.script).stem}.spmd.json"
        done = record.record(parser, options, trace)
        if done is None:
            return record.FAILED
        root = os.getcwd() if options.module else os.path.dirname(os.path.abspath(options.script))
        given = [one for one in more if one.startswith("--source-root")]
        words = [*more, *([] if given else [f"--source-root={root}"])]
        code = subprocess.run([program, "check", *words, str(trace)], check=False).returncode
        return record.IN_PART if code == 0 and done["refused"] else code
