"""Runs a JAX script as it is, on virtual devices of the CPU, and records the first call of each
jitted function that has a shard_map in it: `python -m spmd_trace.jax.script FOLDER SCRIPT
ARGUMENT...`.
"""

import contextlib
import functools
import json
import os
import pathlib
import re
import runpy
import sys
import traceback

import jax
from jax._src import core

from ..locations import is_ours
from .document import dumps
from .record import record_call
from .refused import Unrecordable


class Calls:
    """The traces of a script, one for each function."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.outcome: dict = {"traces": [], "refused": []}

    def record(self, function, args, kwargs) -> None:
        name = getattr(function, "__name__", "function")
        try:
            program = record_call(function, args, kwargs)
        except Unrecordable as error:
            self.outcome["refused"].append(f"{name}: {error}")
            return
        except Exception as error:  # a recording that fails is no reason for the script to
            words = re.sub(r"\s+", " ", str(error))[:300]
            self.outcome["refused"].append(f"{name}: {type(error).__name__}: {words}")
            return
        if program is None:  # one device would do
            return
        file = self.folder / f"{name}.spmd.json"
        number = 1
        while file.exists():
            number += 1
            file = self.folder / f"{name}_{number}.spmd.json"
        file.write_text(dumps(program), encoding="utf-8")
        self.outcome["traces"].append(file.name)

    def leave(self, **more) -> None:
        (self.folder / "outcome.json").write_text(json.dumps(self.outcome | more))


class _Jitted:
    """A jitted function that is recorded when it is first called outside of another one."""

    def __init__(self, jitted, calls: Calls):
        functools.update_wrapper(self, jitted)
        self._jitted, self._calls, self._called = jitted, calls, False

    def __call__(self, *args, **kwargs):
        if not self._called and core.trace_ctx.is_top_level():
            self._called = True
            self._calls.record(self._jitted, args, kwargs)
        return self._jitted(*args, **kwargs)

    def __getattr__(self, name):
        return getattr(self._jitted, name)

    def __get__(self, instance, owner=None):  # a method
        return self if instance is None else functools.partial(self, instance)


@contextlib.contextmanager
def watching(calls: Calls):
    """Within it functions are jitted by one of ours."""
    jit, make_mesh = jax.jit, jax.make_mesh

    @functools.wraps(jit)
    def recorded_jit(function=None, /, **options):
        if function is None:
            return functools.partial(recorded_jit, **options)
        return _Jitted(jit(function, **options), calls)

    @functools.wraps(make_mesh)
    def recorded_make_mesh(axis_shapes, *args, **options):
        wanted = functools.reduce(lambda a, b: a * b, axis_shapes, 1)
        if wanted > len(jax.devices()):
            calls.leave(wants=wanted)
            os._exit(0)
        return make_mesh(axis_shapes, *args, **options)

    jax.jit, jax.make_mesh = recorded_jit, recorded_make_mesh
    try:
        yield
    finally:
        jax.jit, jax.make_mesh = jit, make_mesh


def _place(error: BaseException, script: str) -> str:
    """The line of the script, or of what it uses, in which it failed."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if not is_ours(one.filename)]
    own = [one for one in frames if os.path.dirname(os.path.abspath(script)) in one.filename]
    last = (own or frames or [None])[-1]
    return f"{os.path.basename(last.filename)}:{last.lineno}: " if last else ""


def main() -> None:
    folder, script, *arguments = sys.argv[1:]
    calls = Calls(pathlib.Path(folder))
    calls.leave()
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    try:
        with watching(calls):
            runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        failed = f"the script ends with code {end.code}" if end.code else None
        calls.leave(**({"error": failed} if failed else {}))
    except BaseException as error:
        words = re.sub(r"\s+", " ", str(error))[:300]
        calls.leave(error=f"{_place(error, script)}{type(error).__name__}: {words}")
    else:
        calls.leave()


if __name__ == "__main__":
    main()
