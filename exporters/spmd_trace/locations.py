"""Files, locations and scopes of a program, each with a number.

Paths are relative to the folder that Python imported from, so that a trace names no folder of one
machine.
"""

import functools
import hashlib
import os
import pathlib
import sys
import sysconfig

PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
# The programs that come with the package are programs like any other.
_PROGRAMS = tuple(os.path.join(PACKAGE, part, "programs") + os.sep for part in ("torch", "jax"))
_INSTALLED = ("site-packages", "dist-packages")
# Environments may stand on others, whose packages come from folders of theirs.
SITE = tuple(
    dict.fromkeys(
        os.path.abspath(folder) + os.sep
        for folder in (
            *(sysconfig.get_paths()[which] for which in ("purelib", "platlib")),
            *(one for one in sys.path if os.path.basename(one) in _INSTALLED),
        )
    )
)


def is_ours(path: str) -> bool:
    """Whether a file with an absolute path belongs to the recorder."""
    return path.startswith(PACKAGE) and not path.startswith(_PROGRAMS)


@functools.cache
def relative_path(path: str) -> str:
    """The path below its import root: site-packages, this package, or the script's folder."""
    path = os.path.abspath(path)
    roots = [*SITE, os.path.dirname(PACKAGE.rstrip(os.sep)) + os.sep]
    if sys.argv and sys.argv[0]:
        roots.append(os.path.dirname(os.path.abspath(sys.argv[0])) + os.sep)
    for root in roots:
        if path.startswith(root):
            return pathlib.PurePath(path[len(root) :]).as_posix()
    return os.path.basename(path)


def file_entry(name: str, path: str) -> dict | str:
    """How a trace names a file: with the hash of what it holds, where it can be read."""
    if not os.path.isfile(path):
        return name
    return {"path": name, "sha256": hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()}


class Tables:
    """Numbered files, locations and scopes; a location may have another one as its caller."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.locs: list[dict] = []
        self.scopes: list[str] = []
        self._files: dict[str, int] = {}
        self._locs: dict[tuple, int] = {}
        self._scopes: dict[str, int] = {}

    def scope_named(self, name: str | None) -> int | None:
        """The number of a scope; none without a name."""
        if not name:
            return None
        if name not in self._scopes:
            self._scopes[name] = len(self.scopes)
            self.scopes.append(name)
        return self._scopes[name]

    def known(self, key: tuple) -> int | None:
        """The location that was added under a key."""
        return self._locs.get(key)

    def add(self, key: tuple, path: str, entry: dict, func: str, caller: int | None) -> int:
        """Adds a location, whose lines and columns are in `entry`."""
        if path not in self._files:
            self._files[path] = len(self.files)
            self.files.append(path)
        entry = {"file": self._files[path]} | entry | {"func": func}
        if caller is not None:
            entry["caller"] = caller
        self._locs[key] = len(self.locs)
        self.locs.append(entry)
        return self._locs[key]

    def text(self, number: int | None) -> str:
        """A location as `file:line: `; nothing if it is unknown."""
        if number is None:
            return ""
        entry = self.locs[number]
        return f"{relative_path(self.files[entry['file']])}:{entry['line']}: "

    def files_json(self) -> list:
        return [file_entry(relative_path(path), path) for path in self.files]

    def json(self) -> dict:
        """The three tables as they stand in a trace."""
        return {"files": self.files_json(), "locs": self.locs, "scopes": self.scopes}
