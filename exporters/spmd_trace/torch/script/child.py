"""The process that runs a script: `python -m spmd_trace.torch.script.child SETTINGS`.

SETTINGS is a file of JSON. What became of the script is written to a file in the folder that it names: the
trace, or one sentence. The process ends without the script's `finally` and `atexit`, which may wait for other
ranks. For several ranks it forks, since torch takes seconds to import.
"""

import contextlib
import faulthandler
import json
import os
import pathlib
import runpy
import signal
import sys
import time
import traceback
import warnings


_PATIENCE = 20.0  # seconds


class Outcome:
    """Ends the process with a result or a reason."""

    def __init__(self, folder: pathlib.Path, ranks: list[int]):
        self.folder, self.ranks = folder, ranks
        folder.mkdir()

    def end(self, **what) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        partial = self.folder / "outcome.partial"
        partial.write_text(json.dumps(what), encoding="utf-8")
        partial.replace(self.folder / "outcome.json")
        # Others may still read what this rank has sent: it stays until they are done, too.
        end = time.monotonic() + _PATIENCE
        while "error" not in what and time.monotonic() < end and not self._all_done():
            time.sleep(0.02)
        os._exit(1 if "error" in what else 0)

    def _all_done(self) -> bool:
        folder = self.folder.parent
        return all((folder / str(rank) / "outcome.json").exists() for rank in self.ranks)


def _place(frames) -> str:
    """The innermost place in the script among `(file, line)`."""
    from ...places import relative_path
    from ..places import is_user_code

    found = [(file, line) for file, line in frames if is_user_code(file)]
    return f"{relative_path(found[-1][0])}:{found[-1][1]}: " if found else ""


def _because(error: BaseException, steps, script: str) -> str:
    """One sentence: where the script ended, and why."""
    frames = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_place([(error.filename, error.lineno)])}the script is no Python: {error.msg}"
    place = _place(frames) or f"{script}: "
    if isinstance(error, SystemExit):
        code = "" if error.code in (None, 0) else f" with {error.code!r}"
        return f"{place}the script exits{code} after {_steps(steps)}"
    words = " ".join(str(error).split())
    if isinstance(error, NotImplementedError) and steps.recorder is not None:
        return f"{place}this step cannot be recorded: {words}"
    name = type(error).__name__
    return f"{place}the script raises {name}{': ' + words if words else ''}"


def _steps(steps) -> str:
    taken, wanted = steps.taken, steps.number
    if not steps.counts:
        return "no step of an optimizer"
    return f"{taken} of {wanted} steps of its optimizer"


def main() -> None:
    settings = json.loads(pathlib.Path(sys.argv[1]).read_text())
    warnings.filterwarnings("ignore")
    import spmd_trace.torch  # noqa: F401  before torch

    from . import step  # noqa: F401  with all that it needs

    ranks = settings["ranks"]
    if len(ranks) == 1:
        _run(settings, ranks[0])
    for rank in ranks:
        if os.fork() == 0:
            _run(settings, rank)
    for _ in ranks:
        _, status = os.wait()
        if status:  # the others would wait for this one
            break
    os._exit(0)


def _run(settings: dict, rank: int) -> None:
    """Runs the script as one rank; does not return."""
    import torch

    from ..document import dumps
    from . import step, world

    outcome = Outcome(pathlib.Path(settings["folder"]) / str(rank), settings["ranks"])
    stacks = open(outcome.folder / "stacks.txt", "w", encoding="utf-8")
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=False)
    script = settings["script"]
    sys.argv = [script, *settings["arguments"]]
    folder = os.getcwd() if settings["module"] else os.path.dirname(os.path.abspath(script))
    sys.path[0] = folder
    together = len(settings["ranks"]) > 1
    if together:
        torch.set_num_threads(1)
    meeting = os.path.join(settings["folder"], "meeting") if together else None
    job = world.Job(settings["per_node"], settings["nodes"], rank, meeting)

    def done(recorder) -> None:
        program = recorder.program
        (outcome.folder / "step.spmd.json").write_text(dumps(program), encoding="utf-8")
        axes = [[axis.name, axis.size, axis.stride] for axis in program.mesh.axes]
        what = {"axes": axes, "summed": steps.summed, "contradicted": steps.roles.contradicted}
        what |= {"messages": steps.messages, "exchanged": steps.exchanged}
        outcome.end(ops=len(program.ops), values=steps.roles.digests, **what)

    with world.played(job) as seen:
        observed = settings["observed"]
        steps = step.Steps(job, seen, settings["step"], done, observed, digests=together)
        with steps.watched():
            reason = _script(settings, steps)
    outcome.end(error=reason)


def _script(settings: dict, steps) -> str:
    """Runs the script to its end; why it ended without the step."""
    script = settings["script"]
    name = script if settings["module"] else os.path.basename(script)
    try:
        if settings["module"]:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(script, run_name="__main__")
        steps.finish()
        return f"{name}: the script ends after {_steps(steps)}"
    except BaseException as error:  # the script's own, whatever it is
        if isinstance(error, SystemExit) and not error.code:
            steps.finish()
        if os.environ.get("SPMD_TRACE_DEBUG"):
            traceback.print_exc()
        return _because(error, steps, name)


if __name__ == "__main__":
    main()
