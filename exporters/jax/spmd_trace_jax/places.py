"""Where an operation comes from: source files, lines with their callers, and name scopes."""

import functools
import hashlib
import os
import pathlib
import re
import sys
import sysconfig

from jax._src import source_info_util

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_PROGRAMS = _PACKAGE + "programs" + os.sep
_SITE = tuple(
    os.path.abspath(folder) + os.sep
    for folder in (sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"])
)


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


def _is_program(path: str) -> bool:
    path = os.path.abspath(path)
    return not path.startswith(_PACKAGE) or path.startswith(_PROGRAMS)


def phase_of(name_stack: str) -> str:
    """Forward, backward, or done again for it: JAX names its transformations."""
    if "rematted_computation" in name_stack:
        return "remat"
    return "bwd" if "transpose(" in name_stack else "fwd"


class Places:
    """Interned files, locations and scopes of one program."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.locs: list[dict] = []
        self.scopes: list[str] = []
        self._locs: dict[tuple, int] = {}

    def scope(self, name_stack: str) -> int | None:
        """The names that the program gave: `transpose(jvp(layer))/dot` is `layer.dot`."""
        names = [re.sub(r"^(?:\w+\()+|\)+$", "", part) for part in name_stack.split("/")]
        name = ".".join(part for part in names if part and part != "rematted_computation")
        if not name:
            return None
        if name not in self.scopes:
            self.scopes.append(name)
        return self.scopes.index(name)

    def loc(self, source_info) -> int | None:
        """The innermost frame of the program, with its callers."""
        if source_info.traceback is None:
            return None
        frames = source_info_util.user_frames(source_info.traceback)
        loc = None
        for frame in reversed([one for one in frames if _is_program(one.file_name)]):
            loc = self._intern(frame, loc)
        return loc

    def _intern(self, frame, caller: int | None) -> int:
        key = (frame.file_name, frame.start_line, frame.start_column, frame.function_name, caller)
        if key in self._locs:
            return self._locs[key]
        if frame.file_name not in self.files:
            self.files.append(frame.file_name)
        entry = {"file": self.files.index(frame.file_name), "line": frame.start_line}
        entry |= {"col": frame.start_column + 1, "end": [frame.end_line, frame.end_column + 1]}
        entry["func"] = frame.function_name
        if caller is not None:
            entry["caller"] = caller
        self._locs[key] = len(self.locs)
        self.locs.append(entry)
        return self._locs[key]

    def files_json(self) -> list:
        entries: list = []
        for path in self.files:
            if os.path.isfile(path):
                digest = hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
                entries.append({"path": relative_path(path), "sha256": digest})
            else:
                entries.append(relative_path(path))
        return entries
