"""Numbers of a script in which ranks differ, such as `rank * size`, where operations take them.

In the trace of one rank they would be numbers like others. They become values that differ along the
axes along which they do: the place on an axis, multiplied and moved, where the ranks of a line that
are known say so; else what comes from outside. Of a rank's own attribute, such as where a slice
begins, it is only known that what comes of it is unknown.
"""

import math
import pathlib

from . import ownops
from .document import numbered, text
from .ranks import coordinate, line_of


def state(trace: pathlib.Path, rank: int, steps: ownops.Steps, axes: list) -> int:
    """Writes them into `trace`, of `rank`; how many there are. `steps`: the same step on all ranks
    that are known; `axes`: names, sizes and strides.
    """
    numbers = steps.numbers
    document = ownops.read(trace)
    made = _Made(document)
    sizes = _elements(document)
    found = 0
    for which, op in zip(steps.calls(steps.rows_of(document)), list(document["ops"])):
        # What was taken from a rank's own numbers may have been written as its block of all.
        mine = numbers[rank].get(which)
        now = ownops.numbers_of(op)
        if mine and any(now.get(place, one) != one for place, one in mine.items()):
            continue
        differing = _differing(which, rank, numbers, axes) if mine else {}
        if not differing or not op["op"].startswith("aten."):
            continue
        for place, lines in differing.items():
            if place[0] != "in" and _is_extent(op, place, sizes):
                continue
            found += 1
            if place[0] == "in":
                _put(op["in"], place[1:], made.value(op, mine[place], lines))
                continue
            for out in op.get("out", []):
                out["type"] = dict.fromkeys(lines, "?") | out.get("type", {})
    if found:
        document["op_count"] = len(document["ops"])
        trace.write_text(text(numbered(document)), encoding="utf-8")
    return found


# What has one number in all elements, or none, and what has an element many times.
_ALL_ALIKE = set("empty new_empty zeros new_zeros ones new_ones full new_full expand".split())


def _is_extent(op: dict, place: tuple, sizes: dict[str, int]) -> bool:
    """Whether an attribute says how long a result is that has the elements of an operand, or rows
    that are all alike: each rank has its own number of them."""
    made = [one["id"] for one in op.get("out", [])]
    if not {"size", "shape"} & set(place) or len(made) != 1:
        return False
    if op["op"].split(".")[1] in _ALL_ALIKE:
        return True
    first = next((one for one in op.get("in", []) if isinstance(one, str)), None)
    return first in sizes and sizes[first] == sizes.get(made[0])


def _elements(document: dict) -> dict[str, int]:
    """By value: how many it has, of those whose extents are numbers."""
    values = [*document["params"], *(one for op in document["ops"] for one in op.get("out", []))]
    known = [one for one in values if all(isinstance(n, int) for n in one.get("shape", [None]))]
    return {one["id"]: math.prod(one["shape"]) for one in known}


def _put(items: list, place: tuple, value: str) -> None:
    for number in place[:-1]:
        items = items[number]
    items[place[-1]] = value


def _differing(which: tuple, rank: int, numbers: dict, axes: list) -> dict[tuple, dict[str, dict]]:
    """By place of a number: by axis along which ranks differ in it, the numbers of the places on
    it, as far as all ranks that are known run the operation.
    """
    mine, found = numbers[rank][which], {}
    for name, size, stride in axes:
        line = enumerate(line_of(rank, size, stride))
        others = {there: numbers[one].get(which) for there, one in line if one in numbers}
        if None in others.values() or any(one.keys() != mine.keys() for one in others.values()):
            continue
        for place in mine:
            values = {there: one[place] for there, one in others.items()}
            if len(set(values.values())) > 1:
                found.setdefault(place, {})[name] = values | {
                    "size": size,
                    "here": coordinate(rank, size, stride),
                }
    return found


class _Made:
    """Values that stand for the numbers, ahead of the operations that take them."""

    def __init__(self, document: dict):
        self._document = document
        self._axes = [one["name"] for one in document["meshes"][0]["axes"] if "of" not in one]
        self._known: dict[tuple, str] = {}

    def value(self, op: dict, number, lines: dict[str, dict]) -> str:
        key = (number, str(lines))
        if key not in self._known:
            slopes = {axis: _slope(values) for axis, values in lines.items()}
            whole = isinstance(number, int)
            if whole and None not in slopes.values():
                self._known[key] = self._moved(op, number, lines, slopes)
            else:
                self._known[key] = self._outside(number, lines)
        return self._known[key]

    def _typed(self, name: str, number, axes) -> dict:
        kinds = {axis: "V" if axis in axes else "R" for axis in self._axes}
        dtype = "i64" if isinstance(number, int) else "f32"
        return {"id": name, "dtype": dtype, "shape": [], "type": kinds, "requires_grad": False}

    def _outside(self, number, axes) -> str:
        name = f"own.{len(self._known)}"
        words = {"role": "const", "name": f"number.{len(self._known)}"}
        self._document["params"].append(self._typed(f"%{name}", number, axes) | words)
        return f"%{name}"

    def _moved(self, op: dict, number: int, lines: dict, slopes: dict[str, int]) -> str:
        """The places on the axes, each multiplied, and what is left of the number."""
        base, total = number, None
        for axis, slope in slopes.items():
            base -= slope * lines[axis]["here"]
            index = self._add(op, "axis_index", [], {"axis": axis}, [axis])
            scaled = self._add(op, "mul", [index, slope], {}, None)
            total = scaled if total is None else self._add(op, "add", [total, scaled], {}, None)
        return self._add(op, "add", [total, base], {}, None) if base else total

    def _add(self, before: dict, name: str, ins: list, attrs: dict, axes) -> str:
        made = self._typed(f"%own.{len(self._known)}.{len(self._document['ops'])}", 0, axes or [])
        if axes is None:
            del made["type"]
        op = {"op": name} | ({"in": ins} if ins else {}) | ({"attrs": attrs} if attrs else {})
        made_op = op | {"out": [made]} | ownops.where(before)
        self._document["ops"].insert(self._place(before), made_op)
        return made["id"]

    def _place(self, op: dict) -> int:
        return next(place for place, one in enumerate(self._document["ops"]) if one is op)


def _slope(values: dict) -> int | None:
    """By how much a number grows from place to place, if all neighbours that are known agree."""
    steps = {
        values[place + 1] - values[place]
        for place in range(values["size"] - 1)
        if {place, place + 1} <= values.keys()
    }
    return steps.pop() if len(steps) == 1 else None
