"""The processes that run a script: `python -m spmd_trace.torch.script.child REQUESTS`.

REQUESTS is the number of an open file, from which come the names of folders, one a line: each has
the settings of a run, a file of JSON. Since torch takes seconds to import, the process forks for
each run, and for each rank of it. What became of the script is written to files in the folder of
the rank: the trace, or one sentence. A rank ends without the script's `finally` and `atexit`, which
may wait for others. Where ranks run together each goes on after its step, since others may need it,
until the process that has started them all ends them.

Where a step is to be recorded once more, with what other ranks say of it, each rank forks where the
step begins (`again`): the script does not run up to there a second time.
"""

import contextlib
import faulthandler
import functools
import gc
import json
import logging
import os
import pathlib
import runpy
import signal
import sys
import threading
import time
import traceback
import warnings

from ... import meshnumbers
from ...runs import later, process

_PATIENCE = 20.0  # seconds
_AFTERWARDS = 2.0
_LONGEST = 400  # letters of a message


class Outcome:
    """Ends the process with a result or a reason."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.is_written = False
        self.again: int | None = None  # the process that can record the step once more
        folder.mkdir()
        self.note("pid", str(os.getpid()))
        self.stacks = open(folder / "stacks.txt", "w", encoding="utf-8")
        faulthandler.register(signal.SIGUSR1, file=self.stacks, all_threads=False)

    def note(self, name: str, text: str) -> None:
        process.write(self.folder / name, text)

    def tell(self, **what) -> None:
        """Writes down what became of the script; the first word counts."""
        if not self.is_written:
            self.is_written = True
            self.note("outcome.json", json.dumps(what))

    def end(self, **what) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        failed = "error" in what
        self.tell(**what)
        if self.again is not None:
            if failed:
                os.kill(self.again, signal.SIGKILL)
            _, status = os.waitpid(self.again, 0)
            failed |= status != 0
        os._exit(1 if failed else 0)


class _Impatience(threading.Thread):
    """Ends a script that has failed, or exits, and in its `finally` waits for ever."""

    def __init__(self, end):
        """`end` is called with the exception."""
        super().__init__(daemon=True)
        self._end = end

    def run(self) -> None:
        main = threading.main_thread().ident
        before, since, used = None, 0.0, 0.0
        while True:
            time.sleep(0.5)
            found = sys._current_exceptions().get(main)
            error = found[1] if isinstance(found, tuple) else found  # Python 3.11 gives three
            frame = sys._current_frames()[main]
            now = (id(error), id(frame), frame.f_lasti)
            del frame, found  # they would keep what its variables hold
            if error is None or now != before or time.process_time() - used > 0.5:
                before, since, used = now, time.monotonic(), time.process_time()
            elif time.monotonic() - since > _PATIENCE:
                self._end(error)


def _place(frames) -> str:
    """The innermost place in the script among `(file, line)`."""
    from ...locations import relative_path
    from ..locations import is_user_code

    found = [(file, line) for file, line in frames if is_user_code(file)]
    return f"{relative_path(found[-1][0])}:{found[-1][1]}: " if found else ""


def _failure(error: BaseException, steps, script: str) -> dict:
    """Why a script ended, and whether that is for want of values that it would have elsewhere."""
    from . import shapes

    frames = traceback.extract_tb(error.__traceback__)
    wants = isinstance(error, shapes.Missing)
    wants |= any(one.filename == shapes.__file__ and one.name == "_shapes" for one in frames)
    return {"error": _because(error, steps, script), "wants_values": wants}


def _because(error: BaseException, steps, script: str) -> str:
    """One sentence: where the script ended, and why."""
    from .shapes import Missing

    frames = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_place([(error.filename, error.lineno)])}the script is no Python: {error.msg}"
    place = _place(frames) or f"{script}: "
    if isinstance(error, SystemExit):
        code = "" if error.code in (None, 0) else f" with {error.code!r}"
        return f"{place}the script exits{code} after {_steps(steps)}"
    words = " ".join(str(error).split())
    words = words if len(words) <= _LONGEST else words[:_LONGEST] + "..."
    if isinstance(error, NotImplementedError) and steps.recorder is not None:
        return f"{place}this step cannot be recorded: {words}"
    if isinstance(error, Missing):
        return f"{place}{words}: --data real gives them values"
    name = type(error).__name__
    return f"{place}the script raises {name}{': ' + words if words else ''}"


def _steps(steps) -> str:
    if steps.inference:
        return f"{steps.calls} of {steps.number} calls of a model"
    if steps.given:
        return steps.part_reached()
    taken, wanted = steps.taken, steps.number
    if not steps.counts:
        part = "" if steps.trains else "; --from and --until name a part of it to record"
        return f"no step of an optimizer{part}"
    return f"{taken} of {wanted} steps of its optimizer"


def main() -> None:
    warnings.filterwarnings("ignore")
    import spmd_trace.torch  # noqa: F401  before torch

    logging.getLogger("torch.utils.flop_counter").setLevel(
        logging.ERROR
    )  # that triton is not there
    from . import gradcheck, step  # noqa: F401  with all that they need

    gc.freeze()  # what was imported stays, and is not looked through again
    process.serve(int(sys.argv[1]), _forked)


def _forked(folder: pathlib.Path) -> None:
    """Runs a script as the ranks that its settings name."""
    settings = json.loads((folder / "settings.json").read_text())
    _prints(settings)
    ranks = settings["ranks"]
    if len(ranks) == 1:
        _Rank(settings, ranks[0]).run()
    for rank in ranks:
        if os.fork() == 0:
            _Rank(settings, rank).run()
    while True:
        try:
            _, status = os.wait()
        except ChildProcessError:  # all are done
            os._exit(0)
        if status and settings["together"]:
            # The others would wait for this one, but may be about to call what it does not.
            time.sleep(_AFTERWARDS)
            os._exit(0)


def _prints(settings: dict) -> None:
    """What the script prints is not what the command prints."""
    if settings["silent"]:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.dup2(2, 1)


class _Rank:
    """One rank of a run."""

    def __init__(self, settings: dict, rank: int):
        from . import calls

        self.settings, self.rank = settings, rank
        self.folder = pathlib.Path(settings["folder"])
        self.outcome = Outcome(self.folder / str(rank))
        self.together = settings["together"]
        self.checks = settings.get("check") is not None
        self.keeps: dict | None = settings.get("keep")
        several = len(settings["ranks"]) > 1 or self.together
        self.compared = several or settings["data"] == "fake"
        self.log: calls.Log | None = None
        if self.compared and not self.checks and self.keeps is None:
            self.log = calls.Log(self.outcome.folder / "calls.jsonl")

    def run(self) -> None:
        """Runs the script; does not return."""
        import torch

        from . import effects, step, world

        settings, folder = self.settings, self.folder
        script = settings["script"]
        sys.argv = [script, *settings["arguments"]]
        beside = os.path.dirname(os.path.abspath(script))
        sys.path[0] = os.getcwd() if settings["module"] else beside
        if len(settings["ranks"]) > 1 or settings["again"]:
            torch.set_num_threads(1)  # threads of OpenMP do not survive a fork, either
        meets = self.together or self.checks or self.keeps is not None
        meeting = os.path.join(folder, "meeting") if meets else None
        self.job = world.Job(settings["per_node"], settings["nodes"], self.rank, meeting)
        guard = effects.Guard(folder / "scratch", folder / "effects.jsonl")
        check, kept = self._check(guard), self._kept(guard)
        with (
            _values(settings["data"], self.rank, self._progress) as self.cost,
            world.simulated(self.job, self.log) as self.seen,
            effects.guarded(guard),
            self._samplers(),
        ):
            of_all = (settings["step"], self._done, self._observed())
            words = {"digests": self.compared, "inference": settings["inference"]}
            steps = self.steps = step.Steps(self.job, self.seen, *of_all, **words)
            steps.log = self.log
            self._impatience()
            if check is not None:
                steps.at_step = functools.partial(_checked, check, self.outcome, steps)
            if kept is not None:
                steps.at_step = functools.partial(_keep, kept, steps)
                steps.by_optimizers = self.keeps["by_optimizers"]
            if settings["again"]:
                steps.at_first = functools.partial(self._fork, guard)
            if settings["start"]:
                part = steps.part(settings["start"], settings["until"])
            else:
                part = steps.watched()
            with part:
                reason, failed = _script(settings, steps, self._is_one and self.keeps["ones"])
            steps.at_later(None)
            if check is not None:
                check.fails(reason["error"])
            if kept is not None and not failed:
                kept.ends()
            # Others may not be done, or wait for it.
            if self.together and (self.outcome.is_written or not failed):
                self.outcome.tell(**reason)
                if self.log is not None:
                    self.log.end()
                _wait()
        unanswered = self.seen.unanswered or (failed and self.seen.own_numbers)
        self.outcome.end(**reason, cost=vars(self.cost), unanswered=unanswered)

    def _progress(self, operations: int) -> None:
        self.outcome.note("progress", str(operations))

    def _observed(self) -> dict:
        return self.settings["own"].get(str(self.rank), self.settings["observed"])

    def _impatience(self) -> None:
        """For a rank that others do not wait for."""
        if not self.together:
            name = _name(self.settings)
            _Impatience(lambda e: self.outcome.end(**_failure(e, self.steps, name))).start()

    def _check(self, guard):
        from . import gradcheck

        if not self.checks:
            return None
        files, observed = gradcheck.Files(self.folder, guard.through), self.settings["observed"]
        words = (files, self.rank, self.job.world, observed, self.settings["check"])
        return gradcheck.GradientCheck(*words)

    def _samplers(self):
        from . import onerank

        if self.keeps is None:
            return contextlib.nullcontext()
        self.samplers: list[int] = []
        return (
            onerank.alone(self.keeps["samplers"]) if self._is_one else onerank.noted(self.samplers)
        )

    @property
    def _is_one(self) -> bool:
        """Whether it stands for all ranks."""
        return self.keeps is not None and not self.together

    def _kept(self, guard):
        from . import kept

        if self.keeps is None:
            return None
        file = self.outcome.folder / "kept.pt"
        words = (self.keeps["steps"], self.keeps["nudge"])
        return kept.Kept(file, guard.through, self._has_kept, *words)

    def _has_kept(self, **what) -> None:
        """Ends this rank. A single one compares first, with what runs before it have kept."""
        others = self.keeps["others"]
        if others and "error" not in what:
            from . import onedevice

            what = onedevice.outcome(what["kept"], others)
        if self.together:
            self.outcome.tell(**what, samplers=self.samplers)
            _wait()
        self.outcome.end(**what)

    def _done(self, recorder) -> None:
        """The step is recorded."""
        from ..document import dumps

        program, steps, outcome = recorder.program, self.steps, self.outcome
        if not program.ops:
            nothing = {"error": f"{_name(self.settings)}: what is recorded runs no operation"}
            outcome.tell(**nothing) if self.together else outcome.end(**nothing)
            return
        (outcome.folder / "step.spmd.json").write_text(dumps(program), encoding="utf-8")
        axes = [[axis.name, axis.size, axis.stride] for axis in program.mesh.axes]
        what = {"axes": axes, "summed": steps.summed, "contradicted": steps.roles.contradicted}
        what |= {"messages": steps.messages, "exchanged": steps.exchanged}
        what |= {"by_hand": steps.by_hand, "ops": len(program.ops)}
        what["values"] = _digests(steps.roles.digests, program)
        what |= {"cost": vars(self.cost), "again": outcome.again is not None}
        what["refused"] = [vars(one) for one in recorder.refusals]
        if self.together:
            outcome.tell(**what)
            steps.at_later = Later(outcome.folder, steps.roles).note
            return
        if self.log is not None:
            self.log.end()
        outcome.end(**what)

    # Once more.

    def _fork(self, guard) -> None:
        """Forks a process that waits for what other ranks have in the step."""
        from . import gradcheck

        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        pid = os.fork()
        if pid:
            self.outcome.again = pid
            return
        while not (settings := self.folder / "again.json").exists():
            time.sleep(0.01)
        with guard.through():
            self.settings = json.loads(settings.read_text())
            _prints(self.settings)
            self.folder = pathlib.Path(self.settings["folder"])
            self.outcome = Outcome(self.folder / str(self.rank))
            if self.log is not None:
                self.log.goes_on(self.outcome.folder / "calls.jsonl")
        self._impatience()
        if self.together:
            gradcheck.reconnect(self.folder / "meeting")
        self.steps.observed = self._observed()


class Later:
    """Writes what is trained where steps after the recorded one begin (`spmd_trace.runs.later`)."""

    def __init__(self, folder: pathlib.Path, roles):
        self._file = open(folder / later.FILE, "w", encoding="utf-8")
        self._parameters = [
            (value.claims["name"], tensor)
            for tensor, value in roles.declared
            if value.claims["role"] == "param"
        ]
        self._last: int | None = -1
        self._until = time.monotonic() + later.MOST
        os.nice(5)  # what the step itself still needs comes first

    def note(self, steps: int | None) -> None:
        """`steps`: those that were taken; None: there are no more."""
        if steps == self._last or time.monotonic() > self._until:
            return
        from .evidence import digest, sketch

        self._last = steps
        row: dict = {}
        if steps is not None:
            digests = {name: digest(tensor) for name, tensor in self._parameters}
            sketches = {name: sketch(tensor) for name, tensor in self._parameters}
            row = {"step": steps, "digests": digests, "sketches": sketches}
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()


@contextlib.contextmanager
def _values(data: str, rank: int, progress):
    """Whether large tensors have values; what those that have none would cost."""
    from . import shapes

    if data == "real":
        yield shapes.Cost()
        return
    gc.set_threshold(100_000, 20, 100)  # shapes are small and many: a sixth of the time otherwise
    with shapes.without_values(rank, lambda cost: progress(cost.operations)) as cost:
        yield cost


def _digests(rows: list[dict] | None, program) -> list[dict] | None:
    """Digests as they are compared: fingerprints along the axes of the program."""
    from .fingerprints import Handle

    def plain(one):
        return one.along_axes(program.mesh, program.rank) if isinstance(one, Handle) else one

    return rows and [{key: plain(one) for key, one in row.items()} for row in rows]


def _checked(check, outcome: Outcome, steps, roles) -> None:
    """Checks the gradients of the step that begins; goes on with the script in a process that tries
    something."""
    from . import gradcheck

    try:
        rows = check.run(roles.parameters())
    except gradcheck.Failed as error:
        outcome.tell(error=str(error))
        _wait()
    if rows is not None:
        outcome.tell(rows=rows)
        _wait()
    if steps.by_hand:
        steps.go_on(lambda roles: check.updated())


def _keep(kept, steps, roles) -> None:
    kept.begins(roles)
    steps.go_on(functools.partial(_keep, kept, steps))


def _wait() -> None:
    """Until the process that has started all ranks ends them: others may need this one."""
    while True:
        time.sleep(3600)


def _name(settings: dict) -> str:
    return settings["script"] if settings["module"] else os.path.basename(settings["script"])


def _script(settings: dict, steps, ones=False) -> tuple[dict, bool]:
    """Runs the script to its end; why it ended without the step, and whether it failed. `ones`: the
    numbers that it makes its mesh of are 1."""
    script, name = settings["script"], _name(settings)
    try:
        if settings["module"]:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        elif ones:
            meshnumbers.run_for_one_device(script)
        else:
            runpy.run_path(script, run_name="__main__")
        steps.ends()
        reason = {"error": f"{name}: the script ends after {_steps(steps)}"}
        return reason | {"calls": 0 if steps.trains else steps.calls}, False
    except BaseException as error:  # the script's own, whatever it is
        if isinstance(error, SystemExit) and not error.code:
            steps.ends()
        if os.environ.get("SPMD_TRACE_DEBUG"):
            traceback.print_exc()
        return _failure(error, steps, name), not isinstance(error, SystemExit)


if __name__ == "__main__":
    main()
