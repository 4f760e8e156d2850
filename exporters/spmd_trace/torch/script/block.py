"""One step of a program that is no script: of a cell of a notebook, of a test.

`job` is the world of the program, `Step` records what runs inside of it. No other rank runs: what
nothing says of a value is unknown, unless the caller says it.
"""

import contextlib
import gc
import json
import os
import pathlib
import subprocess
import tempfile

import torch.distributed as dist

from ... import checker
from ...locations import relative_path
from .. import locations
from ..document import dumps
from . import roles, step, world

_simulated: tuple[world.Job, world.Seen] | None = None


@contextlib.contextmanager
def job(ranks: int = 8, rank: int = 0):
    """Simulates one rank of a job: process groups move no data, GPUs are the CPU."""
    global _simulated
    if _simulated is not None or dist.is_initialized():
        raise RuntimeError("the process simulates a rank already, or has process groups of its own")
    if not 0 <= rank < ranks:
        raise ValueError(f"rank {rank}: there are {ranks} ranks")
    simulated_job = world.Job(ranks, 1, rank)
    before = {name: os.environ.get(name) for name in simulated_job.environment()}
    gc.collect()  # models of an earlier job are none of this one
    try:
        with world.simulated(simulated_job) as seen:
            _simulated = simulated_job, seen
            try:
                yield
            finally:
                roles.end_job()
                if dist.is_initialized():
                    dist.destroy_process_group()
    finally:
        _simulated = None
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class Step(contextlib.ContextDecorator):
    """Records what runs inside, or in the function that it decorates, as one training step."""

    def __init__(self, file=None, model=None, kinds=None, data=()):
        """`file`: where the trace goes; `model`: that of the step, where the process holds others.

        `kinds`: by name of a parameter or an input, its kind on each axis, as far as they are not
        known otherwise; `data`: the axes along which ranks have batches of their own.
        """
        self.file = None if file is None else pathlib.Path(file)
        self.text = ""  # the trace, when the step is over
        self.refused: list[dict] = []  # what could not be recorded: `place`, `what`, `remedy`
        self._given = {"model": model, "kinds": kinds, "data": data}
        self._models = None if model is None else [model]
        self._observed = {"kinds": kinds or {}, "data": list(data)}
        self._root = "."
        self._stack = contextlib.ExitStack()

    def _recreate_cm(self):
        return Step(self.file, **self._given)

    def __enter__(self) -> "Step":
        if _simulated is None:
            raise RuntimeError("a step is recorded inside of `with spmd_trace.job(...)`")
        if frames := locations.user_frames():
            file = os.path.abspath(frames[0].f_code.co_filename)
            self._root = file.removesuffix(relative_path(file)) or "."
        steps = step.Steps(*_simulated, 1, self._done, self._observed)
        steps.models = self._models
        self._stack.enter_context(steps.here())
        return self

    def __exit__(self, *error) -> None:
        # Where the program fails, nothing is written.
        self._stack.__exit__(*error)

    def _done(self, recorder) -> None:
        self.text = dumps(recorder.program)
        self.refused = [vars(one) for one in recorder.refusals]
        if self.file is not None:
            partial = self.file.with_name(self.file.name + ".partial")
            partial.write_text(self.text, encoding="utf-8")
            partial.replace(self.file)

    @property
    def trace(self) -> dict:
        """The trace as plain data."""
        return json.loads(self.text)

    def findings(self, *options: str) -> list[dict]:
        """What `spmdlint check` finds, but for hints; `options` are those of the command."""
        found = json.loads(self._checked("--format=json", *options).stdout)["findings"]
        return [one for one in found if one["severity"] != "info"]

    def report(self, *options: str) -> str:
        """What `spmdlint check` prints."""
        done = self._checked("--format=full", *options)
        return done.stdout + done.stderr

    def _checked(self, *options: str) -> subprocess.CompletedProcess:
        program = checker.find()
        if program is None:
            raise RuntimeError(checker.missing())
        if not self.text:
            raise RuntimeError("the step is not over")
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder) / "step.spmd.json"
            trace.write_text(self.text, encoding="utf-8")
            # Findings name the trace: the file is deleted before anybody reads them.
            words = [f"--source-root={self._root}", f"--name={self.file or 'step'}"]
            line = [program, "check", *words, *options, str(trace)]
            done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1, 4):
            raise RuntimeError(f"{os.path.basename(program)}: {done.stderr.strip()}")
        return done
