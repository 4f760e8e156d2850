"""Where DTensor and the checker differ."""

import collections
import dataclasses

from .verdicts import Type, Verdict

# What a difference is: the letter is its class.
KEPT_REFUSED = "a"  # DTensor keeps the operands, the checker refuses
MOVED_ACCEPTED = "b"  # DTensor redistributes or cannot, the checker accepts
OTHER_RESULT = "c"  # both accept, with different results


@dataclasses.dataclass(frozen=True)
class Difference:
    """One decision that the checker does not share.

    sign: of class a the findings; of b which placements DTensor changes, or `error`; of c the
    placements of the first result that differ, DTensor's first.
    """

    kind: str
    op: str
    sign: str
    case: str
    at: tuple[tuple[str, ...], ...]


def _expected(result: dict, axes: list[str]) -> Type:
    """DTensor's result in the checker's terms: an average is a sum with a scale."""
    averaged = [axis for axis, word in zip(axes, result["at"]) if word == "P(avg)"]
    at = tuple("P" if word == "P(avg)" else word for word in result["at"])
    return Type(at, tuple(result["local"]), tuple(sorted(averaged)))


def _moves(row: dict) -> str:
    """Which placements DTensor changes, dimensions left out, as in `P S`."""
    if row["verdict"] == "error":
        return "error"
    moves = set()
    for operand, wanted in zip(row["operands"], row["wanted"]):
        for before, after in zip(operand["at"], wanted):
            if before != after:
                moves.add(before[0])
    return " ".join(sorted(moves)) or "communicates"


def compare(row: dict, verdict: Verdict, axes: list[str]) -> tuple[str, str] | None:
    """Class and sign of the difference, if there is one."""
    if row["verdict"] != "keeps":
        return None if verdict.findings else (MOVED_ACCEPTED, _moves(row))
    if verdict.findings:
        return KEPT_REFUSED, " ".join(verdict.findings)
    for result, ours in zip(row["results"], verdict.results, strict=True):
        if "at" not in result:
            continue
        theirs = _expected(result, axes)
        for one, other in zip(theirs.at, ours.at):
            if one != other:
                return OTHER_RESULT, f"{one} {other}"
        if theirs.scale != ours.scale:
            return OTHER_RESULT, "scale"
        if ours.local is not None and theirs.local != ours.local:
            return OTHER_RESULT, "extents"
    return None


def differences(recorded: dict, verdicts: list[Verdict]) -> list[Difference]:
    found = []
    for row, verdict in zip(recorded["rows"], verdicts, strict=True):
        if difference := compare(row, verdict, list(recorded["meshes"][row["mesh"]])):
            at = tuple(tuple(operand["at"]) for operand in row["operands"])
            found.append(Difference(difference[0], row["op"], difference[1], row["case"], at))
    return found


def families(found: list[Difference]) -> list[tuple[tuple[str, str, str], int]]:
    """Class, sign and case of differences, and how many there are of each."""
    counts = collections.Counter((one.kind, one.sign, one.case) for one in found)
    return sorted(counts.items())


def summary(recorded: dict, found: list[Difference]) -> str:
    kinds = collections.Counter(difference.kind for difference in found)
    total = len(recorded["rows"])
    parts = ", ".join(f"{kinds[kind]} of class {kind}" for kind in "abc")
    ops = len({row["op"] for row in recorded["rows"]})
    return f"{total} pairs of {ops} operations: {total - len(found)} agree, {parts}"
