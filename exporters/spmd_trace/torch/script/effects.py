"""What a script would leave behind: what it writes goes to a scratch folder, it deletes nothing.

A recording is no training run. It must not replace the checkpoint of one, nor upload a curve of two
steps. What was kept from happening is noted, and listed when the recording is over.
"""

import builtins
import concurrent.futures
import contextlib
import functools
import importlib.abc
import importlib.util
import io
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time

import torch

from ...locations import SITE, relative_path
from .. import locations
from ..frameworks.cpu import replaced


class Guard:
    """Keeps a script from changing files that are not its own."""

    def __init__(self, scratch: pathlib.Path, notes: pathlib.Path):
        self.scratch = scratch.resolve()
        self.began = time.time()
        self._inside = False  # a function that is let through calls others
        self._notes = open(notes, "a", encoding="utf-8")
        (self.scratch / "tmp").mkdir(parents=True, exist_ok=True)

    # What happened.

    def note(self, what: str, path=None) -> None:
        """What was done elsewhere or not at all: `torch.save`, of what, and where in the script."""
        frames = locations.user_frames()
        where = ""
        if frames:
            code = frames[0].f_code
            where = f"{relative_path(code.co_filename)}:{frames[0].f_lineno}"
        self._write({"what": what, "path": None if path is None else str(path), "where": where})

    def made(self, folder) -> None:
        """A folder that the script has made: it is removed if nothing comes to lie in it."""
        self._write({"made": os.path.abspath(os.fsdecode(folder))})

    def _write(self, row: dict) -> None:
        self._notes.write(json.dumps(row) + "\n")
        self._notes.flush()

    # Where files are.

    def is_own(self, path) -> bool:
        """Whether a path lies in the scratch folder."""
        return pathlib.Path(os.path.abspath(os.fsdecode(path))).is_relative_to(self.scratch)

    def _mirrored(self, path) -> pathlib.Path:
        whole = pathlib.Path(os.path.abspath(os.fsdecode(path)))
        own = whole.is_relative_to(self.scratch)
        return whole if own else self.scratch / "files" / str(whole).lstrip(os.sep)

    def elsewhere(self, path) -> str:
        """The place in the scratch folder that stands for a path, in a folder that is there."""
        mirrored = self._mirrored(path)
        mirrored.parent.mkdir(parents=True, exist_ok=True)
        return str(mirrored)

    def there(self, path):
        """Where to read a path: what has been written since lies in the scratch folder."""
        if not isinstance(path, (str, os.PathLike)):
            return path
        written = self._mirrored(path)
        return str(written) if written.exists() else path

    def is_older(self, path) -> bool:
        """Whether a file, or one in a folder, was there before the script."""
        if os.path.isdir(path) and not os.path.islink(path):
            files = [os.path.join(root, one) for root, _, names in os.walk(path) for one in names]
            return any(map(self.is_older, files)) or not files and self._before(path)
        return self._before(path)

    def _before(self, path) -> bool:
        try:
            return os.lstat(path).st_mtime < self.began
        except OSError:
            return False

    @contextlib.contextmanager
    def through(self):
        """Lets through what a function does that has been looked at as a whole."""
        before, self._inside = self._inside, True
        try:
            yield
        finally:
            self._inside = before

    @property
    def inside(self) -> bool:
        return self._inside


def _path_of(args: tuple, kwargs: dict, place: int, name: str):
    """An argument that names a file, else None: it may be an open one."""
    given = args[place] if len(args) > place else kwargs.get(name)
    return given if isinstance(given, (str, os.PathLike)) else None


def _redirected(guard: Guard, original, what: str, place: int, name: str):
    """A function that writes a file writes it to the scratch folder."""

    @functools.wraps(original)
    def write(*args, **kwargs):
        path = _path_of(args, kwargs, place, name)
        if path is None or guard.inside or guard.is_own(path):
            return original(*args, **kwargs)
        guard.note(what, path)
        there = guard.elsewhere(path)
        if len(args) > place:
            args = (*args[:place], there, *args[place + 1 :])
        else:
            kwargs[name] = there
        with guard.through():
            return original(*args, **kwargs)

    return write


def _reading(guard: Guard, original, place: int, name: str):
    """A function that reads a file reads what was written in its place."""

    @functools.wraps(original)
    def read(*args, **kwargs):
        if len(args) > place:
            args = (*args[:place], guard.there(args[place]), *args[place + 1 :])
        elif name in kwargs:
            kwargs[name] = guard.there(kwargs[name])
        return original(*args, **kwargs)

    return read


def _not_done(guard: Guard, what: str, result=lambda: None, place=None, name: str = ""):
    """A function that does nothing but say so."""

    def nothing(*args, **kwargs):
        guard.note(what, None if place is None else _path_of(args, kwargs, place, name))
        return result()

    return nothing


def _finished():
    future: concurrent.futures.Future = concurrent.futures.Future()
    future.set_result(None)
    return future


def _is_result(name: str) -> bool:
    """Whether a file lies in the folder where the script runs, and in no folder that is hidden or
    of packages."""
    try:
        parts = pathlib.Path(os.path.abspath(name)).relative_to(os.getcwd()).parts
    except (ValueError, OSError):
        return False
    return not any(one.startswith(".") or one == "site-packages" for one in parts)


_STANDARD = os.path.dirname(os.__file__) + os.sep


def _by_script() -> bool:
    """Whether the script's own files call, be it through the standard library, and no package."""
    frame = sys._getframe(2)
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(SITE) or not path.startswith(_STANDARD):
            return locations.is_own_code(path)
        frame = frame.f_back
    return False


def _opening(guard: Guard, original):
    """`open` for writing, by the script itself, and of what a package writes where the script runs:
    elsewhere packages have caches, which may be written."""

    @functools.wraps(original)
    def opened(file, mode="r", *args, **kwargs):
        if guard.inside or not isinstance(file, (str, bytes, os.PathLike)):
            return original(file, mode, *args, **kwargs)
        name = os.fsdecode(file)
        writes = set(mode) & set("wax+")
        if not (_by_script() or _is_result(name)):
            return original(file, mode, *args, **kwargs)
        if not writes or guard.is_own(name) or name.startswith("/dev/"):
            return original(guard.there(name), mode, *args, **kwargs)
        if not os.path.isdir(os.path.dirname(os.path.abspath(name))):
            return original(file, mode, *args, **kwargs)  # which says that there is no such folder
        guard.note("open", name)
        there = guard.elsewhere(name)
        if "w" not in mode and not os.path.exists(there) and os.path.isfile(name):
            with guard.through():
                shutil.copyfile(name, there)
        return original(there, mode, *args, **kwargs)

    return opened


def _deleting(guard: Guard, original, what: str):
    """A deletion, of what is in the scratch folder or was made by the script, else none."""

    @functools.wraps(original)
    def delete(path, *args, **kwargs):
        if guard.inside or not isinstance(path, (str, bytes, os.PathLike)):
            return original(path, *args, **kwargs)
        name = os.fsdecode(path)
        written = guard.elsewhere(name)
        if not guard.is_own(name) and guard.is_older(name):
            guard.note(what, name)
            return None
        with guard.through():
            if not guard.is_own(name) and os.path.lexists(written):
                result = original(written, *args, **kwargs)
                return result if not os.path.lexists(name) else original(path, *args, **kwargs)
            return original(path, *args, **kwargs)

    return delete


def _moving(guard: Guard, original, what: str):
    """A file that is put in the place of another one, or away: what was there before stays."""

    @functools.wraps(original)
    def move(source, target, *args, **kwargs):
        if guard.inside or not all(isinstance(one, (str, os.PathLike)) for one in (source, target)):
            return original(source, target, *args, **kwargs)
        start = guard.there(source)
        ours = guard.is_own(start) or not guard.is_older(source)
        if ours and not guard.is_own(start) and not guard.is_older(target):
            with guard.through():
                return original(source, target, *args, **kwargs)
        guard.note(what, target)
        with guard.through():
            if ours:
                return original(start, guard.elsewhere(target), *args, **kwargs)
            shutil.copyfile(source, guard.elsewhere(target))
        return None

    return move


def _making(guard: Guard, original):
    @functools.wraps(original)
    def make(path, *args, **kwargs):
        original(path, *args, **kwargs)
        if not guard.inside and "dir_fd" not in kwargs:
            guard.made(path)

    return make


# What is changed in a package when the script imports it.


def _wandb(guard: Guard, module) -> None:
    init = module.init

    @functools.wraps(init)
    def disabled(*args, **kwargs):
        guard.note("wandb.init")
        return init(*args, **(kwargs | {"mode": "disabled"}))

    module.init = disabled


def _mlflow(guard: Guard, module) -> None:
    module.set_tracking_uri(f"file://{guard.scratch / 'mlflow'}")
    module.set_tracking_uri = _not_done(guard, "mlflow.set_tracking_uri")
    start = module.start_run

    @functools.wraps(start)
    def start_run(*args, **kwargs):
        guard.note("mlflow.start_run")
        return start(*args, **kwargs)

    module.start_run = start_run


def _tensorboard(guard: Guard, module) -> None:
    init = module.SummaryWriter.__init__

    @functools.wraps(init)
    def __init__(writer, log_dir=None, *args, **kwargs):
        guard.note("SummaryWriter", log_dir or "runs")
        init(writer, guard.elsewhere(log_dir or "runs"), *args, **kwargs)

    module.SummaryWriter.__init__ = __init__


def _safetensors(guard: Guard, module) -> None:
    for name, place in (("save_file", 1), ("save_model", 1)):
        if hasattr(module, name):
            what = f"{module.__name__}.{name}"
            function = _redirected(guard, getattr(module, name), what, place, "filename")
            setattr(module, name, function)
    if hasattr(module, "load_file"):
        module.load_file = _reading(guard, module.load_file, 0, "filename")


def _checkpoints(guard: Guard, module) -> None:
    for name in ("save", "save_state_dict", "async_save"):
        if hasattr(module, name):
            result = _finished if name == "async_save" else lambda: None
            what = f"{module.__name__}.{name}"
            setattr(module, name, _not_done(guard, what, result, 1, "checkpoint_id"))


_PACKAGES = {
    "wandb": _wandb,
    "mlflow": _mlflow,
    "torch.utils.tensorboard.writer": _tensorboard,
    "tensorboardX.writer": _tensorboard,
    "safetensors.torch": _safetensors,
    "safetensors.numpy": _safetensors,
    "torch.distributed.checkpoint": _checkpoints,
}


class _OnImport(importlib.abc.MetaPathFinder):
    """Changes packages when they are imported: most scripts import few of them."""

    def __init__(self, guard: Guard):
        self.guard = guard
        self._seeking: set[str] = set()

    def find_spec(self, name, path=None, target=None):
        if name not in _PACKAGES or name in self._seeking:
            return None
        self._seeking.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._seeking.remove(name)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            _PACKAGES[name](self.guard, module)

        spec.loader.exec_module = exec_module
        return spec


_NUMPY_SAVES = {
    "save": "file",
    "savez": "file",
    "savez_compressed": "file",
    "savetxt": "fname",
}


def _numpy():
    """None where it is not installed: torch goes without it."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy


@contextlib.contextmanager
def guarded(guard: Guard):
    """Keeps the script from leaving anything behind, while the context lasts."""
    os.environ["WANDB_MODE"] = "disabled"
    finder = _OnImport(guard)
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        save, load = torch.save, torch.load
        enter(replaced(torch, save=_redirected(guard, save, "torch.save", 1, "f")))
        enter(replaced(torch, load=_reading(guard, load, 0, "f")))
        if numpy := _numpy():
            saves = {
                name: _redirected(guard, getattr(numpy, name), f"numpy.{name}", 0, argument)
                for name, argument in _NUMPY_SAVES.items()
            }
            enter(replaced(numpy, **saves, load=_reading(guard, numpy.load, 0, "file")))
        opened = _opening(guard, builtins.open)
        enter(replaced(builtins, open=opened))
        enter(replaced(io, open=opened))
        deletions = {
            name: _deleting(guard, getattr(os, name), f"os.{name}")
            for name in ("remove", "unlink", "rmdir")
        }
        moves = {
            name: _moving(guard, getattr(os, name), f"os.{name}") for name in ("rename", "replace")
        }
        enter(replaced(os, **deletions, **moves, mkdir=_making(guard, os.mkdir)))
        enter(replaced(shutil, rmtree=_deleting(guard, shutil.rmtree, "shutil.rmtree")))
        enter(replaced(tempfile, tempdir=str(guard.scratch / "tmp")))
        for name, change in _PACKAGES.items():
            if name in sys.modules:
                change(guard, sys.modules[name])
        sys.meta_path.insert(0, finder)
        stack.callback(sys.meta_path.remove, finder)
        yield
