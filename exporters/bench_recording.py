"""What recording a script takes, beside one plain step of it on one rank.

python exporters/bench_recording.py --world 4 examples/scripts/*/ddp.py examples/scripts/*/ring.py

Seconds, each the median of several runs. `plain` is one step between two steps of an optimizer,
with groups that move no data, after a first one; a script without an optimizer has none. `import`
is what a process takes that imports what all recordings need, once for all ranks and runs. The
other columns are what `spmd-trace record` says of itself (SPMD_TRACE_DEBUG): `alone` is one rank's
first recording, without the import, `together` all ranks, `again` the recording with what they say,
`rest` what compares them and writes. `over` is all but the import; `check` is spmdlint.
"""

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

_PLAIN = """
import contextlib, os, runpy, sys, time
import spmd_trace.torch
from spmd_trace.torch.script import world
from torch.optim import optimizer
times = []
def stepped(*_):
    times.append(time.perf_counter())
    if len(times) == 3:
        print("plain", times[-1] - times[-2], file=sys.stderr, flush=True)
        os._exit(0)
optimizer.register_optimizer_step_post_hook(stepped)
sys.argv = sys.argv[2:]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
with world.simulated(world.Job(int(os.environ["RANKS"]), 1)), contextlib.redirect_stdout(None):
    runpy.run_path(sys.argv[0], run_name="__main__")
"""
_COLUMNS = ["plain", "import", "alone", "together", "again", "rest", "over", "check", "total"]


def _seconds(*words, **variables) -> tuple[float, str]:
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        env=os.environ | variables,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
    return time.perf_counter() - start, done.stderr


def measured(script: str, arguments: list[str], world: int, folder: str) -> dict[str, float]:
    row: dict[str, float] = {}
    _, said = _seconds("-c", _PLAIN, "-", script, *arguments, RANKS=str(world))
    if found := re.search(r"^plain (\S+)", said, re.M):
        row["plain"] = float(found[1])
    row["import"], _ = _seconds(
        "-c", "import spmd_trace.torch\nfrom spmd_trace.torch.script import step"
    )
    trace = pathlib.Path(folder) / "step.spmd.json"
    words = ["-m", "spmd_trace", "record", "--world", world, "-o", trace, script, *arguments]
    row["total"], said = _seconds(*words, SPMD_TRACE_DEBUG="1")
    runs = [
        (name, float(n)) for name, n in re.findall(r"^spmd-trace: (\w[\w ]*): (\S+) s$", said, re.M)
    ]
    named = {"alone": "alone", "real": "alone", "observed": "again"}
    for name, seconds in runs:
        column = named.get(name.removesuffix(" anew"), "together")
        row[column] = row.get(column, 0.0) + seconds
    row["rest"] = row["total"] - sum(seconds for _, seconds in runs)
    row["alone"] -= row["import"]
    row["over"] = row["total"] - row["import"]
    if checker := os.environ.get("SPMDLINT"):
        start = time.perf_counter()
        subprocess.run([checker, "check", str(trace)], capture_output=True)
        row["check"] = time.perf_counter() - start
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--world", type=int, default=4)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("scripts", nargs="+", help="each a file, with its arguments after spaces")
    options = parser.parse_args()
    print(f"{'script':24}" + "".join(f"{name:>9}" for name in _COLUMNS))
    for line in options.scripts:
        script, *arguments = line.split()
        with tempfile.TemporaryDirectory() as folder:
            every = (script, arguments, options.world, folder)
            rows = [measured(*every) for _ in range(options.runs)]
        found = {name: [row[name] for row in rows if name in row] for name in _COLUMNS}
        texts = [f"{statistics.median(of):9.2f}" if of else f"{'-':>9}" for of in found.values()]
        print(f"{pathlib.Path(script).stem:24}" + "".join(texts), flush=True)


if __name__ == "__main__":
    main()
