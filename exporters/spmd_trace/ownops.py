"""Operations that some ranks run and others do not, such as those below `if rank == 0:`.

What they make is not the same part of anything on every rank: their results are of no known type
along the axis, which is written into the trace. What one rank alone adds to a sum that all ranks
have is: an addend of which the others have zeros. Such an operation is marked `alone`, and so is a
norm that one rank alone puts into a list of norms, as of weights that all ranks have.
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
        numbers, names = {}, []
        for rank, path in traces.items():
            document = read(path)
            self.rows[rank] = rows(document)
            numbers[rank] = [numbers_of(op) for op in document["ops"]]
            names.append(set(_names(document).values()))
        self._shared = set.intersection(*names) if names else set()
        self.rows = {rank: self._plain(found) for rank, found in self.rows.items()}
        counts = [collections.Counter(map(_call, found)) for found in self.rows.values()]
        calls = counts[0] if counts else ()
        self._equal = {call for call in calls if len({one[call] for one in counts}) == 1}
        for rank, found in self.rows.items():
            self.numbers[rank] = dict(zip(self.calls(found), numbers[rank]))

    def rows_of(self, document: dict) -> list[tuple]:
        """Those of a trace of the same step."""
        return self._plain(rows(document))

    def calls(self, found: list[tuple]) -> list[tuple]:
        """By what an operation of one rank is found on another: the how manieth of its line it is
        where all ranks run it as often, whatever its shapes, else that of those like it."""
        return numbered([_call(row) if _call(row) in self._equal else row for row in found])

    def _plain(self, found: list[tuple]) -> list[tuple]:
        """Without the names of parameters that not all ranks have, such as those of experts."""
        return [
            (
                place,
                op,
                tuple((of, name if name in self._shared else "") for of, name in taken),
                made,
            )
            for place, op, taken, made in found
        ]


def _call(row: tuple) -> tuple:
    return row[:2]


def numbers_of(op: dict) -> dict[tuple, float]:
    """By their places in operands and attributes."""
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
    alone: dict[tuple, set[str]] = {}  # likewise, where no other rank runs it
    for name, size, stride in axes:
        lacking: list[set[int]] = []
        for other in line_of(rank, size, stride):
            if other == rank or other not in rows_of:
                continue
            ops = ops or read(steps.traces[rank])["ops"]
            same = rows_of[other] == rows_of[rank]
            lacking.append(set() if same else set(_lacking(rows_of[rank], rows_of[other], ops)))
        compared = lacking and len(lacking) == size - 1
        everywhere = set.intersection(*lacking) if compared else set()
        for place in set().union(*lacking):
            kind = alone if place in everywhere else own
            kind.setdefault(counted[place], set()).add(name)
    if not own and not alone:
        return 0
    document = read(trace)
    named = list(zip(numbered(steps.rows_of(document)), document["ops"]))
    marked = 0
    for axis in sorted(set().union(*own.values(), *alone.values())):
        only = [op for which, op in named if axis in alone.get(which, ())]
        marked += _mark_alone(only, axis, document)
        marked += _mark_unknown([op for which, op in named if axis in own.get(which, ())], axis)
    trace.write_text(text(document), encoding="utf-8")
    return marked


def _mark_unknown(ops: list[dict], axis: str) -> int:
    for op in ops:
        for out in op.get("out", []):
            out["type"] = out.get("type", {}) | {axis: "?"}
    return len(ops)


def _mark_alone(ops: list[dict], axis: str, document: dict) -> int:
    """Marks operations that no other rank runs. What they add to a sum of all ranks is an addend,
    and what they make it of is read by nothing else, so that it may be anything elsewhere.
    """
    norms = _norms_in_lists(ops, document)
    for op in norms:
        op.setdefault("attrs", {}).setdefault("alone", []).append(axis)
    ops, count = [op for op in ops if op not in norms], len(norms)
    if not ops:
        return count
    mine = {id(op) for op in ops}
    made = {out["id"] for op in ops for out in op.get("out", [])}
    sums = [op for op in ops if _adds(op)]
    added = {out["id"] for op in sums for out in op["out"]}
    others = (op for op in document["ops"] if id(op) not in mine)
    outside = {one for op in others for one in _values(op)}
    outside |= {one["value"] for one in document.get("outputs", []) if "value" in one}
    used = made & outside
    reads = {op["in"][0] for op in sums}  # what was added to is not what is added
    if used - added or reads & (made - added) or any(op["in"][1] in added for op in sums):
        return count + _mark_unknown(ops, axis)
    for op in sums:
        op.setdefault("attrs", {}).setdefault("alone", []).append(axis)
    return count + len(ops)


_NORM, _LIST = "aten.linalg_vector_norm.", "aten.stack."


def _norms_in_lists(ops: list[dict], document: dict) -> list[dict]:
    """Norms of tensors that are read in lists of numbers alone."""
    made = {op["out"][0]["id"]: op for op in ops if op["op"].startswith(_NORM)}
    other = {one["value"] for one in document.get("outputs", []) if "value" in one}
    for op in document["ops"] if made else ():
        listed = op["op"].startswith(_LIST) and not op.get("kw")
        other |= set() if listed else set(_values(op))
    return [op for one, op in made.items() if one not in other and "dim" not in op.get("attrs", {})]


def _adds(op: dict) -> bool:
    """Whether it adds a tensor to another one in place, as it is."""
    operands = op.get("in", [])
    return (
        op["op"].split(".")[:2] == ["aten", "add_"]
        and len(operands) == 2
        and all(isinstance(one, str) for one in operands)
        and "alpha" not in op.get("attrs", {})
    )


def _values(op: dict):
    pending = [op.get("in", []), list(op.get("kw", {}).values())]
    while pending:
        one = pending.pop()
        if isinstance(one, list):
            pending += one
        elif isinstance(one, str):
            yield one


def read(trace: pathlib.Path) -> dict:
    return json.loads(trace.read_text(encoding="utf-8"))


def _names(document: dict) -> dict[str, str]:
    """Of parameters: those of inputs depend on the run."""
    return {one["id"]: one.get("name") for one in document["params"] if one.get("role") == "param"}


def rows(document: dict) -> list[tuple]:
    """What each operation looks like: where it stands, its name, the shapes that it reads and
    makes, and the names of what these are, or are the gradients of."""
    names = _names(document)
    known = {one["id"]: (str(one.get("shape")), names.get(one["id"])) for one in document["params"]}
    locs, found = document["locs"], []
    for op in document["ops"]:
        where = locs[op["loc"]] if "loc" in op else {}
        unknown = ("", None)
        taken = tuple(known.get(one, unknown) for one in op.get("in", []) if isinstance(one, str))
        made = [one.get("shape") for one in op.get("out", [])]
        if op["op"].startswith(_LIST) and _is_of_numbers(op, known):
            made = ["numbers"]  # on one rank there may be more of them, such as norms
        for one, shape in zip(op.get("out", []), made):
            name = names.get(one.get("grad_of")) or known.get(one.get("alias_of"), unknown)[1]
            known[one["id"]] = (str(shape), name)
        place = (where.get("file"), where.get("line"), where.get("col"))
        found.append((place, op["op"], taken, str(made)))
    return found


def _is_of_numbers(op: dict, known: dict[str, tuple]) -> bool:
    return all(known.get(one, ("",))[0] == "[]" for one in _values(op))


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
