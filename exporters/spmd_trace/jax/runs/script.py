"""Runs a JAX script as it is, on virtual devices of the CPU, and records calls of each jitted
function that has a shard_map in it, the first one and those in which its arguments first have
other shapes: `python -m spmd_trace.jax.runs.script FOLDER HOW SCRIPT ARGUMENT...`.

HOW: `record` records. `keep` also writes what these calls take and make. `one` and `cut` make them
again on one device and compare: `one` with 1 in place of the numbers that the script makes its mesh
of, `cut` with the script as it is, whose meshes are cut to one device.
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
from unittest import mock

import jax
import numpy as np
from jax._src import core

from ... import meshnumbers
from ...locations import is_ours
from ..document import dumps
from ..record import record_call
from ..refused import Unrecordable
from ..versions import missing
from . import onedevice


class Calls:
    """The traces of a script, one for each function."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.outcome: dict = {"traces": [], "refused": [], "missing": missing()}
        self._names: list[str] = []

    def call(self, function, args, kwargs):
        """The first call of a function with these shapes."""
        self.record(function, args, kwargs)
        return function(*args, **kwargs)

    def pass_over(self, function) -> None:
        """A call with one more form of its arguments than are recorded."""
        name = getattr(function, "__name__", "function")
        if name not in self.outcome.setdefault("passed_over", []):
            self.outcome["passed_over"].append(name)

    def record(self, function, args, kwargs) -> str | None:
        """The name of the trace, if there is one."""
        name = getattr(function, "__name__", "function")
        try:
            program = record_call(function, args, kwargs)
        except Unrecordable as error:
            self.outcome["refused"].append(f"{self.numbered(name)}: {error}")
            return None
        except Exception as error:  # a recording that fails is no reason for the script to
            self.outcome["refused"].append(f"{self.numbered(name)}: {_words(error)}")
            return None
        if program is None:  # one device would do
            self.outcome.setdefault("unsharded", []).append(name)
            return None
        name = self.numbered(name)
        (self.folder / f"{name}.spmd.json").write_text(dumps(program), encoding="utf-8")
        self.outcome["traces"].append(f"{name}.spmd.json")
        return name

    def numbered(self, name: str) -> str:
        """A name that no other function has."""
        self._names.append(name)
        number = self._names.count(name)
        return name if number == 1 else f"{name}_{number}"

    def leave(self, **more) -> None:
        (self.folder / "outcome.json").write_text(json.dumps(self.outcome | more))


class KeptCalls(Calls):
    """The traces of a script, and what the calls took and made."""

    def call(self, function, args, kwargs):
        if (name := self.record(function, args, kwargs)) is None:
            return function(*args, **kwargs)
        made, reason = onedevice.keep(self.folder / f"{name}.kept", function, args, kwargs)
        if reason:
            self.outcome.setdefault("unkept", {})[name] = reason
        return made


class OneDeviceCalls(Calls):
    """The same calls on one device."""

    def __init__(self, folder: pathlib.Path):
        super().__init__(folder)
        self.outcome = {"compared": {}, "uncompared": {}}

    def call(self, function, args, kwargs):
        name = getattr(function, "__name__", "function")
        if onedevice.has_no_shard_map(function, args, kwargs):
            return function(*args, **kwargs)
        name = self.numbered(name)
        file = self.folder / f"{name}.kept"
        if not file.exists():
            return function(*args, **kwargs)
        try:
            made, found = onedevice.compared(onedevice.read(file), function, args, kwargs)
            self.outcome["compared"][name] = found
        except onedevice.NotComparable as error:
            self.outcome["uncompared"][name] = str(error)
            made = function(*args, **kwargs)
        except Exception as error:  # whatever it is, it says nothing of a call on all devices
            self.outcome["uncompared"][name] = _words(error)
            made = function(*args, **kwargs)
        if len(self.outcome["compared"]) + len(self.outcome["uncompared"]) == self._wanted():
            self.leave()
            os._exit(0)
        return made

    def _wanted(self) -> int:
        return len(list(self.folder.glob("*.kept")))

    def leave(self, **more) -> None:
        (self.folder / "one.json").write_text(json.dumps(self.outcome | more))


def _words(error: BaseException) -> str:
    words = re.sub(r"\s+", " ", str(error))[:300]
    return f"{type(error).__name__}: {words}"


MOST_FORMS = 4  # of the arguments of one function, of which a call is recorded


def _form(args, kwargs) -> tuple:
    """What a function is traced again for: shapes and types of arguments, and words among them.
    Numbers may be a counter."""
    leaves, tree = jax.tree.flatten((args, kwargs))
    return tree, tuple(
        (np.shape(one), str(one.dtype))
        if hasattr(one, "dtype")
        else (type(one), one if isinstance(one, str) else None)
        for one in leaves
    )


class _Jitted:
    """A jitted function of which the calls outside of another one are recorded, one with each form
    of arguments."""

    def __init__(self, jitted, calls: Calls):
        functools.update_wrapper(self, jitted)
        self._jitted, self._calls, self._forms = jitted, calls, []

    def __call__(self, *args, **kwargs):
        if core.trace_ctx.is_top_level() and (form := _form(args, kwargs)) not in self._forms:
            if len(self._forms) < MOST_FORMS:
                self._forms.append(form)
                return self._calls.call(self._jitted, args, kwargs)
            self._calls.pass_over(self._jitted)
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


@contextlib.contextmanager
def _one_device():
    """Within it there is one device, whatever the script has asked XLA for."""
    devices = jax.devices
    listed = dict.fromkeys(["devices", "local_devices"], lambda *args, **words: devices()[:1])
    counted = dict.fromkeys(["device_count", "local_device_count"], lambda *args, **words: 1)
    with contextlib.ExitStack() as stack:
        for name, function in (listed | counted).items():
            stack.enter_context(mock.patch.object(jax, name, function))
        yield


@contextlib.contextmanager
def _one_device_meshes():
    """Within it a mesh has one device."""
    mesh = jax.sharding.Mesh
    new = mesh.__new__

    def cut(cls, devices, axis_names, *args, **options):
        devices = np.asarray(devices)
        return new(cls, devices[(slice(1),) * devices.ndim], axis_names, *args, **options)

    mesh.__new__ = staticmethod(cut)
    try:
        yield
    finally:
        mesh.__new__ = staticmethod(new)


def _run(script: str, how: str) -> None:
    if how != "one":
        runpy.run_path(script, run_name="__main__")
        return
    with _one_device():
        meshnumbers.run_for_one_device(script)


_CALLS = {"record": Calls, "keep": KeptCalls, "one": OneDeviceCalls, "cut": OneDeviceCalls}


def main() -> None:
    folder, how, script, *arguments = sys.argv[1:]
    calls = _CALLS[how](pathlib.Path(folder))
    calls.leave()
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    meshes = _one_device_meshes() if how in ("one", "cut") else contextlib.nullcontext()
    try:
        with watching(calls), meshes:
            _run(script, how)
    except SystemExit as end:
        failed = f"the script ends with code {end.code}" if end.code else None
        calls.leave(**({"error": failed} if failed else {}))
    except BaseException as error:
        calls.leave(error=f"{_place(error, script)}{_words(error)}")
    else:
        calls.leave()


if __name__ == "__main__":
    main()
