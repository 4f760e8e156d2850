"""Operations that some ranks run and others do not, such as those below `if rank == 0:`.

What they make is not the same part of anything on every rank: their results are of no known type
along the axis, which is written into the trace.
"""

import collections
import difflib
import json
import pathlib

from .document import text
from .ranks import line_of


class Steps:
    """One step on several ranks, whose traces are read once: of each rank what its operations look
    like, and the numbers that they take, by operation and by their places in operands and
    attributes.
    """

    def __init__(self, traces: dict[int, pathlib.Path]):
        self.traces = traces
        self.rows: dict[int, list[tuple]] = {}
        self.numbers: dict[int, dict[tuple, dict[tuple, float]]] = {}
        for rank, path in traces.items():
            document = read(path)
            self.rows[rank] = rows(document)
            self.numbers[rank] = {
                which: _numbers(op) for which, op in zip(numbered(self.rows[rank]), document["ops"])
            }


def _numbers(op: dict) -> dict[tuple, float]:
    found = dict(_listed(op.get("in", []), ("in",)))
    for key, one in op.get("attrs", {}).items():
        found |= dict(_listed([one], (key,)))
    return found


def _listed(items: list, place: tuple):
    for number, item in enumerate(items):
        if isinstance(item, list):
            yield from _listed(item, (*place, number))
        elif isinstance(item, (int, float)) and not isinstance(item, bool):
            yield (*place, number), item


def mark(trace: pathlib.Path, rank: int, steps: Steps, axes: list) -> int:
    """Marks in `trace`, of `rank`, the operations that ranks beside it along an axis lack; how many
    there are.

    `steps`: the same step on all ranks that are known; `axes`: names, sizes and strides.
    """
    rows_of = steps.rows
    ops = None  # of the rank, read where another one differs
    counted = numbered(rows_of[rank])
    own: dict[tuple, set[str]] = {}  # by operation: the axes
    for name, size, stride in axes:
        for other in line_of(rank, size, stride):
            if other in rows_of and rows_of[other] != rows_of[rank]:
                ops = ops or read(steps.traces[rank])["ops"]
                for place in _lacking(rows_of[rank], rows_of[other], ops):
                    own.setdefault(counted[place], set()).add(name)
    if not own:
        return 0
    document = read(trace)
    marked = 0
    for which, op in zip(numbered(rows(document)), document["ops"]):
        for axis in sorted(own.get(which, ())):
            marked += 1
            for out in op.get("out", []):
                out["type"] = out.get("type", {}) | {axis: "?"}
    trace.write_text(text(document), encoding="utf-8")
    return marked


def read(trace: pathlib.Path) -> dict:
    return json.loads(trace.read_text(encoding="utf-8"))


def rows(document: dict) -> list[tuple]:
    """What each operation looks like: where it stands, its name, the shapes that it reads and
    makes."""
    shapes = {one["id"]: one.get("shape") for one in document["params"]}
    locs, found = document["locs"], []
    for op in document["ops"]:
        where = locs[op["loc"]] if "loc" in op else {}
        taken = [shapes.get(one) for one in op.get("in", []) if isinstance(one, str)]
        made = [one.get("shape") for one in op.get("out", [])]
        shapes |= {one["id"]: one.get("shape") for one in op.get("out", [])}
        place = (where.get("file"), where.get("line"), where.get("col"))
        found.append((place, op["op"], str(taken), str(made)))
    return found


def where(op: dict) -> dict:
    """The place of an operation, for another one that stands for it or beside it."""
    return {key: op[key] for key in ("phase", "ctx", "loc", "scope") if key in op}


def numbered(found: list[tuple]) -> list[tuple]:
    """Each with how many like it stand before it."""
    seen: collections.Counter = collections.Counter()
    counted = []
    for row in found:
        counted.append((row, seen[row]))
        seen[row] += 1
    return counted


def _lacking(mine: list[tuple], theirs: list[tuple], ops: list[dict]) -> list[int]:
    """The operations of one rank that have none like them on another, line by line of the
    script."""
    lines: dict[tuple, tuple[list, list]] = {}
    for side, rows in enumerate((mine, theirs)):
        for place, row in enumerate(rows):
            lines.setdefault(row[0][:2], ([], []))[side].append(place)
    lacking: list[int] = []
    for here, there in lines.values():
        if len(here) <= len(there):  # the others run more, or make it otherwise
            continue
        wanted, known = [mine[place] for place in here], [theirs[place] for place in there]
        matcher = difflib.SequenceMatcher(None, wanted, known, False)
        for tag, start, end, *_ in matcher.get_opcodes():
            if tag == "delete":
                lacking += _closed(here, wanted, start, end, ops)
            elif tag == "replace":
                lacking += here[start:end]
    return lacking


def _closed(here: list[int], rows: list[tuple], start: int, end: int, ops: list[dict]) -> list[int]:
    """Of runs that look the same, each a place further, the one whose results others read least."""
    runs = [here[start:end]]
    while end < len(rows) and rows[start] == rows[end] and len(runs) < len(runs[0]):
        start, end = start + 1, end + 1
        runs.append(here[start:end])

    def read_outside(run: list[int]) -> int:
        made = {out["id"] for place in run for out in ops[place].get("out", [])}
        others = (ops[place] for place in here if place not in run)
        return sum(one in made for op in others for one in op.get("in", []) if isinstance(one, str))

    return min(runs, key=read_outside)
