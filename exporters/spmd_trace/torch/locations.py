"""Where an operation comes from: the running frames, innermost first.

Frames of torch, of the standard library and of this package are left out.
"""

import contextlib
import functools
import itertools
import linecache
import os
import sys
import sysconfig

import torch

from ..locations import SITE, Tables, is_ours

_HIDDEN = tuple(
    os.path.abspath(folder) + os.sep
    for folder in (os.path.dirname(torch.__file__), sysconfig.get_paths()["stdlib"])
)
# Packages that speak for the program that calls them.
_SPOKESMEN = tuple(os.path.join(folder, "spmd_types") + os.sep for folder in SITE)


@functools.cache
def is_user_code(path: str) -> bool:
    """Whether a frame of this file belongs to the recorded program."""
    if path.startswith("<"):
        return path.startswith("<ipython")  # a cell of a notebook
    path = os.path.abspath(path)
    if is_ours(path) or path.startswith((_HIDDEN[0], *_SPOKESMEN)):
        return False
    return path.startswith(SITE) or not path.startswith(_HIDDEN[1])


@functools.cache
def is_own_code(path: str) -> bool:
    """Whether a file is the program's own, and of no installed package."""
    return is_user_code(path) and not os.path.abspath(path).startswith(SITE)


def is_own_frame(frame) -> bool:
    return is_own_code(frame.f_code.co_filename)


def position_in_code(code, instruction: int) -> tuple[int | None, ...]:
    """First and last line of an instruction, and the bytes of these at which it begins and ends:
    what Python 3.10 does not know, which has the first line alone.
    """
    if hasattr(code, "co_positions"):
        return next(itertools.islice(code.co_positions(), instruction // 2, None))
    lines = (line for first, end, line in code.co_lines() if first <= instruction < end)
    return next(lines, None), None, None, None


def qualified_name(code) -> str:
    """`Class.function`; `function` in Python 3.10."""
    return getattr(code, "co_qualname", code.co_name)


@functools.cache
def _position(code, instruction: int) -> tuple[int, int | None, tuple[int, int] | None]:
    """Line, column and end of an instruction; columns count code points from 1."""
    line, end_line, column, end_column = position_in_code(code, instruction)
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


def user_frames() -> list:
    """The running frames of the program, innermost first."""
    return [frame for frame in _frames() if _is_user_frame(frame)]


def user_locals():
    """Names and values of the variables of the innermost frame of the program."""
    frame = next((frame for frame in _frames() if _is_user_frame(frame)), None)
    return list(frame.f_locals.items()) if frame is not None else []


def user_variables() -> list[tuple[str, object]]:
    """Names and values of the variables of all frames of the program, those of the innermost
    first."""
    scopes = [scope for frame in user_frames() for scope in (frame.f_locals, frame.f_globals)]
    return [item for scope in scopes for item in scope.items()]


class Passages:
    """How often the program has reached some of its lines, named as `file.py:12`."""

    def __init__(self, start: str, until: str | None):
        self.start = start
        self.count = {place: 0 for place in (start, until) if place is not None}

    @contextlib.contextmanager
    def watched(self, passed):
        """Calls `passed` with the name of each line that is reached, before it runs."""
        wanted = {}  # by line: the end of the path, and the name
        for place in self.count:
            file, _, line = place.rpartition(":")
            wanted.setdefault(int(line), []).append((os.sep + os.path.normpath(file), place))
        ends = tuple(end for rows in wanted.values() for end, _ in rows)

        def on_line(frame, event, argument):
            if event == "line":
                path = os.path.abspath(frame.f_code.co_filename)
                for end, place in wanted.get(frame.f_lineno, ()):
                    if path.endswith(end):
                        self.count[place] += 1
                        passed(place)
            return on_line

        def on_call(frame, event, argument):
            path = frame.f_code.co_filename
            return on_line if (os.sep + path).endswith(ends) else None

        before = sys.gettrace()
        sys.settrace(on_call)
        try:
            yield
        finally:
            sys.settrace(before)


class Locations(Tables):
    """The locations of one program."""

    def __init__(self) -> None:
        super().__init__()
        self._outermost = None

    @contextlib.contextmanager
    def below_here(self):
        """Leaves out the callers of the user code that enters this context."""
        self._outermost = next(frame for frame in _frames() if _is_user_frame(frame))
        try:
            yield
        finally:
            self._outermost = None

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
        if (known := self.known(key)) is not None:
            return known
        line, column, end = _position(code, instruction)
        entry: dict = {"line": line}
        if column is not None and end is not None:
            entry |= {"col": column, "end": list(end)}
        return self.add(key, code.co_filename, entry, qualified_name(code), caller)
