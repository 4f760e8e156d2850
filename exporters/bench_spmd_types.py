"""Compares the time that type checking takes per operation: spmd_types and spmdlint.

python bench_spmd_types.py [--model llama3] [--parallel GRID] [--layers N] [--runs N] [--checker
PATH]

Both judge the same torchtitan step in one run, each in global and in local mode (kinds per axis, no
partition specs): mode against mode. spmd_types checks while the forward runs: its time is that of
the forward with checking less that of the forward without, over the function calls that it judged.
spmdlint checks the recorded trace, forward, backward and optimizer, as a process of its own: its
time is what `check --timing` says without reading, in local mode `check --timing --mode=local` of
the same file. Each figure is the least of several runs, of spmdlint three times as many, since its
times are of the clock and not of the processor. The forward runs on one thread and on one short
sample, and the processor's time is taken: types do not depend on sizes.
"""

import argparse
import contextlib
import dataclasses
import logging
import os
import pathlib
import re
import subprocess
import tempfile
import time
import warnings

_SMALL = {"samples": 1, "sequence": 8, "typecheck": False}  # checked here or not at all


def _least(run, runs: int) -> float:
    """The least processor time of several runs, in seconds, after one that does not count."""
    times = []
    for _ in range(runs + 1):
        start = time.thread_time()
        run()
        times.append(time.thread_time() - start)
    return min(times[1:])


class _Forward:
    """The forward pass and the loss of a model, under either mode of checking or none."""

    def __init__(self, config):
        from spmd_trace.torch.programs.torchtitan_models import Batch, Model

        self.model = Model(config)
        self.batch = Batch(config, self.model)

    def __call__(self, local: bool | None) -> None:
        from spmd_types.checker import typecheck

        model, batch = self.model, self.batch
        checked = contextlib.nullcontext() if local is None else typecheck(local=local)
        with model.context(), checked:
            result = model.model(
                batch.tokens, positions=batch.positions, attention_masks=batch.masks
            )
            model.loss(result, batch.labels, batch.valid)

    def judged(self, local: bool) -> int:
        """How many function calls the checker judges."""
        from spmd_types import _checker

        from spmd_trace.torch.frameworks.cpu import replaced

        count = 0
        core = _checker._SpmdTypeMode._typecheck_core

        def counted(*args, **kwargs):
            nonlocal count
            count += 1
            return core(*args, **kwargs)

        with replaced(_checker._SpmdTypeMode, _typecheck_core=counted):
            self(local)
        return count


def _spmd_types(config, runs: int) -> dict[str, tuple[int, float] | None]:
    """Judged operations and microseconds for each, by mode; None if it refuses the program."""
    import torch
    from spmd_types import SpmdTypeError

    from spmd_trace.torch.frameworks import cpu, torchtitan

    torch.set_num_threads(1)
    with torchtitan.on_cpu(), cpu.fake_ranks(0, config.world):
        forward = _Forward(config)
        plain = _least(lambda: forward(None), runs)
        found = {}
        for mode, local in (("global", False), ("local", True)):
            try:
                count = forward.judged(local)
            except SpmdTypeError:
                found[mode] = None
                continue
            checked = _least(lambda local=local: forward(local), runs)
            found[mode] = (count, (checked - plain) / count * 1e6)
        return found


def _spmdlint(checker: str, path: pathlib.Path, mode: str, runs: int) -> tuple[float, float]:
    """Milliseconds for reading and for checking a trace."""
    command = [checker, "check", "--timing", f"--mode={mode}", str(path)]
    found = []
    for _ in range(3 * runs):
        said = subprocess.run(command, capture_output=True, text=True, check=False).stderr
        match = re.search(r"read ([\d.]+) ms, check ([\d.]+) ms", said)
        if match is None:
            raise RuntimeError(f"`{checker} check --timing` gives no times: {said.strip()}")
        found.append((float(match[1]), float(match[2])))
    return min(read for read, _ in found), min(check for _, check in found)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="llama3")
    parser.add_argument("--parallel")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--checker", default=os.environ.get("SPMDLINT", "spmdlint"))
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    import spmd_trace.torch
    from spmd_trace.torch.programs import torchtitan_models

    grids = torchtitan_models.PARALLEL[options.model]
    grid = options.parallel or next(iter(grids))
    config = torchtitan_models.Config(options.model, layers=options.layers, **grids[grid])
    found = _spmd_types(dataclasses.replace(config, **_SMALL), options.runs)
    program = torchtitan_models.record(config).program
    ops = len(program.ops)
    print(f"{options.model}, {grid}, {options.layers} layers, {ops} ops")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "step.spmd.json"
        path.write_text(spmd_trace.torch.dumps(program), encoding="utf-8")
        for mode, result in found.items():
            read, check = (
                took / ops * 1e3 for took in _spmdlint(options.checker, path, mode, options.runs)
            )
            print(f"{mode:6}  spmdlint    {check:9.3f} us per op, reading {read:.3f} us")
            if result is None:
                print(f"{mode:6}  spmd_types  refuses the program in this mode")
                continue
            count, theirs = result
            print(f"{mode:6}  spmd_types  {theirs:9.3f} us per call of {count}")
            print(
                f"{mode:6}  {theirs / check:.0f} times, {theirs / (check + read):.0f} with reading"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
