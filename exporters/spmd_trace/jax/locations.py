"""Where an operation comes from: source lines as JAX kept them, and name scopes."""

import functools
import os
import re

from ..locations import Tables, is_ours
from .versions import user_frames


_absolute = functools.cache(os.path.abspath)


class Frames(list):
    """The calls that lead to an operation of a module, innermost first: file, first and last line
    and column, function."""


def phase_of(name_stack: str) -> str:
    """Forward, backward, or done again for it: JAX names its transformations."""
    if "rematted_computation" in name_stack:
        return "remat"
    return "bwd" if "transpose(" in name_stack else "fwd"


class Locations(Tables):
    """The locations of one program."""

    def scope(self, name_stack: str) -> int | None:
        """The names that the program gave: `transpose(jvp(layer))/dot` is `layer.dot`."""
        names = [re.sub(r"^(?:\w+\()+|\)+$", "", part) for part in name_stack.split("/")]
        return self.scope_named(
            ".".join(part for part in names if part and part != "rematted_computation")
        )

    def loc(self, source_info) -> int | None:
        """The innermost frame of the program, with its callers."""
        if source_info.traceback is None:
            return None
        if isinstance(source_info.traceback, Frames):
            return self._of_module(source_info.traceback)
        frames = user_frames(source_info)
        loc = None
        for frame in reversed([one for one in frames if not is_ours(_absolute(one.file_name))]):
            loc = self._intern(frame, loc)
        return loc

    def _of_module(self, frames: Frames) -> int | None:
        loc = None
        for key in reversed(frames):
            file, line, col, last, end, function = key
            if file.startswith("<") or is_ours(_absolute(file)):
                continue
            known = self.known((*key, loc))
            entry = {"line": line, "col": col + 1, "end": [last, end + 1]}
            loc = self.add((*key, loc), file, entry, function, loc) if known is None else known
        return loc

    def function(self, debug_info) -> int | None:
        """Where a function begins, for what stands in no line of it: `body at /train.py:12`."""
        name, _, place = (debug_info.func_src_info or "").partition(" at ")
        file, _, line = place.rpartition(":")
        if not line.isdigit() or is_ours(_absolute(file)):
            return None
        key = (file, int(line), 0, name, None)
        if (known := self.known(key)) is not None:
            return known
        return self.add(key, file, {"line": int(line), "col": 1}, name, None)

    def _intern(self, frame, caller: int | None) -> int:
        key = (frame.file_name, frame.start_line, frame.start_column, frame.function_name, caller)
        if (known := self.known(key)) is not None:
            return known
        entry = {"line": frame.start_line, "col": frame.start_column + 1}
        entry["end"] = [frame.end_line, frame.end_column + 1]
        return self.add(key, frame.file_name, entry, frame.function_name, caller)
