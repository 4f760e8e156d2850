"""The process that runs a script: `python -m spmd_trace.torch.script.child SETTINGS`.

SETTINGS is a file of JSON. What became of the script is written to a file in the folder that it
names: the trace, or one sentence. The process ends without the script's `finally` and `atexit`,
which may wait for others. For several ranks it forks, since torch takes seconds to import: each
goes on after its step, since others may need it, until the process that has started them all ends
them.
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

_PATIENCE = 20.0  # seconds
_AFTERWARDS = 2.0
_LONGEST = 400  # letters of a message


class Outcome:
    """Ends the process with a result or a reason."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.is_written = False
        folder.mkdir()
        self.note("pid", str(os.getpid()))

    def note(self, name: str, text: str) -> None:
        """At once: others read it."""
        partial = self.folder / f"{name}.partial"
        partial.write_text(text, encoding="utf-8")
        partial.replace(self.folder / name)

    def tell(self, **what) -> None:
        """Writes down what became of the script; the first word counts."""
        if not self.is_written:
            self.is_written = True
            self.note("outcome.json", json.dumps(what))

    def end(self, **what) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        self.tell(**what)
        os._exit(1 if "error" in what else 0)


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
    if steps.given:
        return steps.part_reached()
    taken, wanted = steps.taken, steps.number
    if not steps.counts:
        return "no step of an optimizer"
    return f"{taken} of {wanted} steps of its optimizer"


def main() -> None:
    settings = json.loads(pathlib.Path(sys.argv[1]).read_text())
    warnings.filterwarnings("ignore")
    import spmd_trace.torch  # noqa: F401  before torch

    logging.getLogger("torch.utils.flop_counter").setLevel(
        logging.ERROR
    )  # that triton is not there
    from . import step  # noqa: F401  with all that it needs

    ranks = settings["ranks"]
    if len(ranks) == 1:
        _run(settings, ranks[0])
    for rank in ranks:
        if os.fork() == 0:
            _run(settings, rank)
    started_by = os.getppid()
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:  # all are done
            os._exit(0)
        if (
            status and settings["together"]
        ):  # the others would wait for this one, but may be about to call what it does not
            time.sleep(_AFTERWARDS)
            os._exit(0)
        if not pid:
            time.sleep(0.05)
        if os.getppid() != started_by:  # which is to end us, and is gone
            os.killpg(0, signal.SIGKILL)


def _run(settings: dict, rank: int) -> None:
    """Runs the script as one rank; does not return."""
    import torch

    from ..document import dumps
    from . import calls, effects, gradcheck, step, world

    outcome = Outcome(pathlib.Path(settings["folder"]) / str(rank))
    stacks = open(outcome.folder / "stacks.txt", "w", encoding="utf-8")
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=False)
    script = settings["script"]
    sys.argv = [script, *settings["arguments"]]
    sys.path[0] = os.getcwd() if settings["module"] else os.path.dirname(os.path.abspath(script))
    several, together = len(settings["ranks"]) > 1, settings["together"]
    if several:
        torch.set_num_threads(1)
    meets = together or settings.get("check") is not None
    meeting = os.path.join(settings["folder"], "meeting") if meets else None
    job = world.Job(settings["per_node"], settings["nodes"], rank, meeting)

    def done(recorder) -> None:
        program = recorder.program
        if not program.ops:
            nothing = {"error": f"{_name(settings)}: what is recorded runs no operation"}
            outcome.tell(**nothing) if together else outcome.end(**nothing)
            return
        (outcome.folder / "step.spmd.json").write_text(dumps(program), encoding="utf-8")
        axes = [[axis.name, axis.size, axis.stride] for axis in program.mesh.axes]
        what = {"axes": axes, "summed": steps.summed, "contradicted": steps.roles.contradicted}
        what |= {"messages": steps.messages, "exchanged": steps.exchanged}
        what |= {"by_hand": steps.by_hand, "ops": len(program.ops)}
        what["values"] = _digests(steps.roles.digests, program)
        what |= {"cost": vars(cost)}
        what["refused"] = [vars(one) for one in recorder.refusals]
        if together:
            outcome.tell(**what)
            return
        if log is not None:
            log.end()
        outcome.end(**what)

    folder = pathlib.Path(settings["folder"])
    guard = effects.Guard(folder / "scratch", folder / "effects.jsonl")
    check = None
    if (seconds := settings.get("check")) is not None:
        files = gradcheck.Files(folder, guard.through)
        check = gradcheck.GradientCheck(files, rank, job.world, settings["observed"], seconds)
    compared = several or together or settings["data"] == "fake"
    log = calls.Log(outcome.folder / "calls.jsonl") if compared and check is None else None
    with (
        _values(settings["data"], rank, outcome) as cost,
        world.simulated(job, log) as seen,
        effects.guarded(guard),
    ):
        observed = settings["own"].get(str(rank), settings["observed"])
        steps = step.Steps(job, seen, settings["step"], done, observed, digests=compared)
        if not together:
            name = _name(settings)
            _Impatience(lambda error: outcome.end(**_failure(error, steps, name))).start()
        if check is not None:
            steps.at_step = functools.partial(_checked, check, outcome, steps)
        if settings["start"]:
            part = steps.part(settings["start"], settings["until"])
        else:
            part = steps.watched()
        with part:
            reason, failed = _script(settings, steps)
        if check is not None:
            check.fails(reason["error"])
        # Others may not be done, or wait for it.
        if together and (outcome.is_written or not failed):
            outcome.tell(**reason)
            if log is not None:
                log.end()
            _wait()
    outcome.end(**reason, cost=vars(cost), unanswered=seen.unanswered)


@contextlib.contextmanager
def _values(data: str, rank: int, outcome: Outcome):
    """Whether large tensors have values; what those that have none would cost."""
    from . import shapes

    if data == "real":
        yield shapes.Cost()
        return
    gc.set_threshold(100_000, 20, 100)  # shapes are small and many: a sixth of the time otherwise
    with shapes.without_values(
        rank, lambda cost: outcome.note("progress", str(cost.operations))
    ) as cost:
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


def _wait() -> None:
    """Until the process that has started all ranks ends them: others may need this one."""
    while True:
        time.sleep(3600)


def _name(settings: dict) -> str:
    return settings["script"] if settings["module"] else os.path.basename(settings["script"])


def _script(settings: dict, steps) -> tuple[dict, bool]:
    """Runs the script to its end; why it ended without the step, and whether it failed."""
    script, name = settings["script"], _name(settings)
    try:
        if settings["module"]:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(script, run_name="__main__")
        steps.ends()
        return {"error": f"{name}: the script ends after {_steps(steps)}"}, False
    except BaseException as error:  # the script's own, whatever it is
        if isinstance(error, SystemExit) and not error.code:
            steps.ends()
        if os.environ.get("SPMD_TRACE_DEBUG"):
            traceback.print_exc()
        return _failure(error, steps, name), not isinstance(error, SystemExit)


if __name__ == "__main__":
    main()
