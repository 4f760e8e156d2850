"""The process that runs a script: `python -m spmd_trace.torch.script.child SETTINGS`.

SETTINGS is a file of JSON. What became of the script is written to the file that it names: the trace, or one
sentence. The process ends without the script's `finally` and `atexit`, which may wait for other ranks.
"""

import contextlib
import faulthandler
import json
import logging
import os
import pathlib
import runpy
import signal
import sys
import traceback
import warnings


class Outcome:
    """Ends the process with a result or a reason."""

    def __init__(self, folder: str):
        self.folder = pathlib.Path(folder)

    def end(self, **what) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        partial = self.folder / "outcome.partial"
        partial.write_text(json.dumps(what), encoding="utf-8")
        partial.replace(self.folder / "outcome.json")
        os._exit(0)


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
    outcome = Outcome(settings["folder"])
    stacks = open(outcome.folder / "stacks.txt", "w", encoding="utf-8")
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=False)
    warnings.filterwarnings("ignore")
    import spmd_trace.torch  # noqa: F401  before torch

    from ..document import dumps
    from . import step, world

    logging.disable(logging.NOTSET)
    script = settings["script"]
    sys.argv = [script, *settings["arguments"]]
    sys.path[0] = os.path.dirname(os.path.abspath(script)) if not settings["module"] else os.getcwd()
    job = world.Job(settings["per_node"], settings["nodes"], settings["rank"])

    def done(recorder) -> None:
        (outcome.folder / "step.spmd.json").write_text(dumps(recorder.program), encoding="utf-8")
        outcome.end(ops=len(recorder.program.ops))

    with world.played(job) as seen:
        steps = step.Steps(job, seen, settings["step"], done)
        with steps.watched():
            try:
                if settings["module"]:
                    runpy.run_module(script, run_name="__main__", alter_sys=True)
                else:
                    runpy.run_path(script, run_name="__main__")
                steps.finish()
                reason = f"{os.path.basename(script)}: the script ends after {_steps(steps)}"
            except BaseException as error:  # the script's own, whatever it is
                reason = None
                if steps.recorder is not None and steps.taken >= steps.number:
                    with contextlib.suppress(Exception):
                        steps.finish()
                if os.environ.get("SPMD_TRACE_DEBUG"):
                    traceback.print_exc()
                reason = _because(error, steps, os.path.basename(script))
    outcome.end(error=reason)


if __name__ == "__main__":
    main()
