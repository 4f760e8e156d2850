"""What an axis cuts, read off a second recording of the step at another size of the axis.

An extent of a parameter or an input that changes as the size does is cut there. One that does not
change proves nothing: a local batch and experts of a rank's own keep their extents. Nor does a
value that is first used by an operation which the other recording does not have.

So it is of a number that is added to a tensor: one that changes as a power of the size is that
power times another number, as where a script divides by the extent of its own block.
"""

import dataclasses
import difflib
import json
import math
import pathlib
import re

from .document import text

_MOST = 20_000  # operations of two programs that differ and are aligned nevertheless


@dataclasses.dataclass
class Vary:
    """`tp=2: ARGS`: the arguments of the script with which an axis has another size."""

    axis: str
    size: int
    arguments: list[str] | None

    @classmethod
    def read(cls, words: str) -> "Vary":
        found = re.fullmatch(r"\s*([\w.-]+)\s*=\s*([1-9]\d*)\s*(?::(.*))?", words, re.DOTALL)
        if found is None:
            raise ValueError(f"{words}: it is AXIS=SIZE: ARGUMENTS")
        arguments = None if found[3] is None else found[3].split()
        return cls(found[1], int(found[2]), arguments)

    def ranks(self, axes: list, per_node: int, nodes: int) -> dict:
        """The ranks of the job where the other axes stay as they are. `axes`: names, sizes and
        strides.
        """
        sizes = {name: size for name, size, _ in axes}
        if self.axis not in sizes:
            raise ValueError(f"--vary: the axes are {', '.join(sizes)}")
        before = sizes[self.axis]
        if before == self.size:
            raise ValueError(f"--vary: {self.axis} has {before} ranks as it is")
        if per_node * self.size % before == 0:
            return {"per_node": per_node * self.size // before, "nodes": nodes}
        if nodes * self.size % before == 0:
            return {"per_node": per_node, "nodes": nodes * self.size // before}
        raise ValueError(
            f"--vary: {per_node * nodes} ranks, with {self.size} for {before} of {self.axis}"
        )


def state(
    trace: pathlib.Path, other: pathlib.Path, axis: str, sure: bool = False
) -> tuple[int, str]:
    """Writes into a trace the cuts along an axis that its second recording shows; how many values
    have one, and a word about what does not pair. `sure`: none where a rank may have several blocks
    of a dimension, with those of others between them.
    """
    document, second = (json.loads(one.read_text(encoding="utf-8")) for one in (trace, other))
    size, there = (_sizes(one).get(axis) for one in (document, second))
    if there is None or there == size:
        return 0, f"its second recording has the axes {_sizes(second)}"
    pairs, words = _paired(document, second)
    by_name = {one["name"]: one for one in second["params"]}
    first_use, first_there = _first_uses(document), _first_uses(second)
    found = 0
    for value in document["params"]:
        like = by_name.get(value["name"])
        if like is None or value["id"] not in first_use or like["role"] != value["role"]:
            continue
        if pairs.get(first_use[value["id"]], -1) != first_there.get(like["id"]):
            continue
        if sure and value["role"] != "input" and axis not in value.get("separate", []):
            continue
        dim = _cut(value["shape"], like["shape"], size, there)
        if dim is not None and _note(value, dim, axis):
            found += 1
    if found:
        trace.write_text(text(document), encoding="utf-8")
    return found, words


def state_numbers(trace: pathlib.Path, other: pathlib.Path, axis: str) -> int:
    """Gives the numbers that are added, and are powers of the size, this scale; how many."""
    document, second = (json.loads(one.read_text(encoding="utf-8")) for one in (trace, other))
    size, there = (_sizes(one).get(axis) for one in (document, second))
    if there is None or there == size:
        return 0
    pairs, _ = _paired(document, second)
    found: dict[tuple[float, int], str] = {}
    for place, paired in pairs.items():
        op, like = document["ops"][place], second["ops"][paired]
        for at, power in _powers(op, like, size / there):
            number = (op["in"][at], power)
            if number not in found:
                found[number] = f"%sized.{len(found)}"
                made = _sized(document, axis, power) | {
                    "id": found[number],
                    "name": f"{number[0]:.6g}",
                }
                document["params"].append(made)
            op["in"][at] = found[number]
    if found:
        trace.write_text(text(document), encoding="utf-8")
    return len(found)


def _powers(op: dict, like: dict, ratio: float):
    """The operands of an addition that are numbers, and which power of the ratio of the sizes they
    have changed by."""
    if not op["op"].startswith(("aten.add.", "aten.sub.")) or len(op["in"]) != len(like["in"]):
        return
    for at, (one, other) in enumerate(zip(op["in"], like["in"])):
        if not (isinstance(one, float) and isinstance(other, float)) or one * other <= 0:
            continue
        power = math.log(one / other, ratio)
        if round(power) and math.isclose(power, round(power), abs_tol=1e-9):
            yield at, round(power)


def _sized(document: dict, axis: str, power: int) -> dict:
    kinds = {one["name"]: "R" for one in document["meshes"][0]["axes"] if "of" not in one}
    above = "*".join([axis] * power)
    below = "*".join([axis] * -power)
    scale = above or (f"1/({below})" if power < -1 else f"1/{below}")
    made = {"dtype": "f32", "shape": [], "type": kinds, "scale": scale}
    return made | {"requires_grad": False, "role": "const"}


def of_own_parameters(trace: pathlib.Path) -> set[str]:
    """The axes along which each rank has a parameter of its own, made by itself or taken out of a
    whole one."""
    document = json.loads(trace.read_text(encoding="utf-8"))
    found: set[str] = set()
    for value in document["params"]:
        found |= {*value.get("separate", []), *value.get("taken", [])}
        if value["role"] == "param":
            found |= {axis for axis, kind in value.get("type", {}).items() if kind == "V"}
    return found


def _axes(at) -> list[str]:
    return [at] if isinstance(at, str) else at or []


def _sizes(document: dict) -> dict[str, int]:
    return {one["name"]: one["size"] for one in document["meshes"][0]["axes"]}


def _cut(shape: list, like: list, size: int, there: int) -> int | None:
    """The one dimension whose extents are in the ratio of the sizes, where all others are equal."""
    if len(shape) != len(like):
        return None
    changed = [dim for dim, (a, b) in enumerate(zip(shape, like)) if a != b]
    if len(changed) != 1 or not all(isinstance(one, int) for one in (*shape, *like)):
        return None
    (dim,) = changed
    return dim if shape[dim] * size == like[dim] * there else None


def _note(value: dict, dim: int, axis: str) -> bool:
    """States a cut, unless more is known, or another axis cuts the dimension: which is outer is
    not known.
    """
    spec = value.get("spec") or [None] * len(value["shape"])
    kinds = value.setdefault("type", {})
    if axis in value.get("taken", []):  # in blocks with those of other ranks between them
        return False
    if spec[dim] is not None or any(axis in _axes(one) for one in spec):
        return False
    if kinds.get(axis, "?") not in ("?", "V", "R|I"):
        return False
    for claims in (value, value.get("grad"), (value.get("grad") or {}).get("step")):
        if claims is None or (claims is not value and "type" not in claims):
            continue
        claims["spec"] = [axis if at == dim else one for at, one in enumerate(spec)]
        claims["type"][axis] = "V"
    value["x_cuts"] = value.get("x_cuts", {}) | {axis: "sizes"}
    return True


def _first_uses(document: dict) -> dict[str, int]:
    """By value: the first operation that takes it."""
    found: dict[str, int] = {}

    def note(item, place: int) -> None:
        if isinstance(item, str):
            found.setdefault(item, place)
        elif isinstance(item, list):
            for one in item:
                note(one, place)

    for place, op in enumerate(document["ops"]):
        note(op.get("in", []), place)
        for one in op.get("kw", {}).values():
            note(one, place)
    return found


def _paired(document: dict, second: dict) -> tuple[dict[int, int], str]:
    """The operations of two recordings of one program, by place; a word about those that have no
    counterpart.
    """
    mine, theirs = _rows(document), _rows(second)
    if mine == theirs:
        return {place: place for place in range(len(mine))}, ""
    if len(mine) + len(theirs) > _MOST:
        return {}, f"the steps have {len(mine)} and {len(theirs)} operations, which are not aligned"
    blocks = difflib.SequenceMatcher(None, mine, theirs, autojunk=False).get_matching_blocks()
    pairs = {a + n: b + n for a, b, length in blocks for n in range(length)}
    return pairs, f"{len(mine) - len(pairs)} of {len(mine)} operations have no counterpart there"


def _rows(document: dict) -> list[tuple]:
    locs = document.get("locs", [])
    rows = []
    for op in document["ops"]:
        where = locs[op["loc"]] if "loc" in op else {}
        rows.append(
            (
                op["op"],
                where.get("file"),
                where.get("line"),
                where.get("col"),
                len(op.get("out", [])),
            )
        )
    return rows
