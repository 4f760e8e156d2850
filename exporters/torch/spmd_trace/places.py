"""Where an operation comes from: source files, lines with their callers, and module scopes.

Frames of torch, of the standard library and of this package are left out; paths are relative to
the folder that Python imported from, so that a trace names no folder of one machine.
"""

import contextlib
import functools
import hashlib
import itertools
import linecache
import os
import pathlib
import sys
import sysconfig

import torch

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_PROGRAMS = _PACKAGE + "programs" + os.sep
_HIDDEN = tuple(
    os.path.abspath(folder) + os.sep
    for folder in (os.path.dirname(torch.__file__), sysconfig.get_paths()["stdlib"])
)
_SITE = tuple(
    os.path.abspath(folder) + os.sep
    for folder in (sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"])
)
# Packages that speak for the program that calls them.
_SPOKESMEN = tuple(os.path.join(folder, "spmd_types") + os.sep for folder in _SITE)


@functools.cache
def is_user_code(path: str) -> bool:
    """Whether a frame of this file belongs to the recorded program."""
    if path.startswith("<"):
        return False
    path = os.path.abspath(path)
    if path.startswith(_PACKAGE):
        return path.startswith(_PROGRAMS)
    if path.startswith((_HIDDEN[0], *_SPOKESMEN)):
        return False
    return path.startswith(_SITE) or not path.startswith(_HIDDEN[1])


@functools.cache
def relative_path(path: str) -> str:
    """The path below its import root: site-packages, this package, or the script's folder."""
    path = os.path.abspath(path)
    roots = [*_SITE, os.path.dirname(_PACKAGE.rstrip(os.sep)) + os.sep]
    if sys.argv and sys.argv[0]:
        roots.append(os.path.dirname(os.path.abspath(sys.argv[0])) + os.sep)
    for root in roots:
        if path.startswith(root):
            return pathlib.PurePath(path[len(root) :]).as_posix()
    return os.path.basename(path)


@functools.cache
def _position(code, instruction: int) -> tuple[int, int | None, tuple[int, int] | None]:
    """Line, column and end of an instruction; columns count code points from 1."""
    found = next(itertools.islice(code.co_positions(), instruction // 2, None))
    line, end_line, column, end_column = found
    line = line or code.co_firstlineno
    if column is None or end_line is None or end_column is None:
        return line, None, None

    def points(number: int, offset: int) -> int:
        text = linecache.getline(code.co_filename, number).encode()
        return len(text[:offset].decode(errors="replace")) + 1

    return line, points(line, column), (end_line, points(end_line, end_column))


def _frames():
    """The running frames, innermost first."""
    frame = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_user_frame(frame) -> bool:
    return is_user_code(frame.f_code.co_filename)


def user_code_in_backward() -> bool:
    """Whether autograd is running a backward or a hook that the program wrote in Python."""
    for frame in _frames():
        if frame.f_code.co_name == "_engine_run_backward":
            return False
        if _is_user_frame(frame):
            return True
    return False


class Places:
    """Interned files, locations and scopes of one program."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.locs: list[dict] = []
        self.scopes: list[str] = []
        self._files: dict[str, int] = {}
        self._locs: dict[tuple, int] = {}
        self._scopes: dict[str, int] = {}
        self._outermost = None

    @contextlib.contextmanager
    def below_here(self):
        """Leaves out the callers of the user code that enters this context."""
        self._outermost = next(frame for frame in _frames() if _is_user_frame(frame))
        try:
            yield
        finally:
            self._outermost = None

    def scope(self, name: str | None) -> int | None:
        if not name:
            return None
        if name not in self._scopes:
            self._scopes[name] = len(self.scopes)
            self.scopes.append(name)
        return self._scopes[name]

    def here(self) -> int | None:
        """The innermost user frame of the running program, with its callers."""
        frames = []
        for frame in _frames():
            if _is_user_frame(frame):
                frames.append(frame)
            if frame is self._outermost:
                break
        loc = None
        for frame in reversed(frames):
            loc = self._intern(frame.f_code, frame.f_lasti, loc)
        return loc

    def _intern(self, code, instruction: int, caller: int | None) -> int:
        key = (code, instruction, caller)
        if key in self._locs:
            return self._locs[key]
        path = code.co_filename
        if path not in self._files:
            self._files[path] = len(self.files)
            self.files.append(path)
        line, column, end = _position(code, instruction)
        entry: dict = {"file": self._files[path], "line": line}
        if column is not None and end is not None:
            entry |= {"col": column, "end": list(end)}
        entry["func"] = code.co_qualname
        if caller is not None:
            entry["caller"] = caller
        self._locs[key] = len(self.locs)
        self.locs.append(entry)
        return self._locs[key]

    def files_json(self) -> list[dict]:
        entries = []
        for path in self.files:
            digest = hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
            entries.append({"path": relative_path(path), "sha256": digest})
        return entries
