"""Where JAX and the checker differ about a program.

They agree where both accept and every value has the same type, and where both refuse. R and Reduced
are one word of JAX, `R`; what is made of numbers alone is I for JAX and either R or I for the
checker, and so is what has no gradient.
"""

import dataclasses

from ..document import Body, Op, Program, Value
from .verdicts import Verdict, cut


@dataclasses.dataclass(frozen=True, order=True)
class Difference:
    """kind a: JAX accepts, the checker refuses; b: JAX refuses, the checker accepts; c: both
    accept, with different types. sign: of a the findings; of b JAX's error; of c the operation and
    the two kinds, JAX's first, where they differ first."""

    kind: str
    case: str
    sign: str


def differences(case: str, program: Program, refusal: str | None, verdict: Verdict):
    """The differences about one program. refusal: JAX's error, if it has no types for it."""
    if refusal is not None:
        return [] if verdict.findings else [Difference("b", case, refusal)]
    found = [Difference("c", case, sign) for sign in _origins(program, verdict)]
    return found + [Difference("a", case, name) for name in verdict.findings]


def compared_values(program: Program) -> int:
    """How many values have a type of JAX."""
    bodies = [program.main, *program.main.bodies()]
    return sum(len(op.outs) for body in bodies for op in body.ops if op.expected)


def words(value: Value) -> dict[str, str]:
    """JAX's type in the checker's words."""
    found = {axis: "R" if kind == "Reduced" else kind for axis, kind in value.type.items()}
    for dim, entry in enumerate(value.spec or ()):
        names = [entry] if isinstance(entry, str) else entry or []
        found |= {axis: cut(dim, place) for place, axis in enumerate(names)}
    return found


def _origins(program: Program, verdict: Verdict) -> list[str]:
    """Operations whose results differ though their operands do not."""
    found: dict[str, None] = {}
    for body in [program.main, *program.main.bodies()]:
        ids = _ids(body)
        differing: set[int] = set()
        for op in body.ops:
            follows = any(id(value) in differing for value in _flat(op.ins))
            for value in op.outs:
                signs = _clashes(op, value, verdict.types[body.name].get(ids[id(value)], {}))
                if signs:
                    differing.add(id(value))
                    found |= dict.fromkeys([] if follows else signs)
                elif follows and not op.expected:
                    differing.add(id(value))
    return list(found)


def _clashes(op: Op, value: Value, ours: dict[str, str]) -> list[str]:
    if not op.expected:
        return []
    signs = []
    for axis, theirs in words(value).items():
        mine = ours.get(axis, "?").replace("Reduced", "R")
        same = {"I", "R"} if mine == "R|I" or not value.derived else {mine}
        if mine != "?" and theirs != mine and not {theirs, mine} - {"R|I"} <= same:
            signs.append(f"{op.name}: {theirs}, {mine}")
    return sorted(set(signs))


def _ids(body: Body) -> dict[int, str]:
    values = [*body.params, *(value for op in body.ops for value in op.outs)]
    return {id(value): f"%{place}" for place, value in enumerate(values)}


def _flat(items) -> list[Value]:
    found = []
    for item in items:
        found += (
            _flat(item) if isinstance(item, list) else [item] if isinstance(item, Value) else []
        )
    return found
