"""The checker's verdicts about decisions: accepted with types, or refused with findings."""

import collections
import dataclasses
import json
import pathlib
import re
import tempfile

from ...checker import output
from .programs import Trace, traces

_DEFINITION = re.compile(r"%\S+(?: aliases %\S+)?: .*? = ")
_RESULT = re.compile(r"(%[\w./-]+)(?: aliases %\S+)?: (.*)")
_SHAPE = re.compile(r"\w+\[([^\]]*)\]")
_CLAIM = re.compile(r"(\?|R\|I|Reduced|R|I|V|P(?:\(\w+\))?|S\(\d+\))@(\([\w, ]+\)|\w+)")


@dataclasses.dataclass(frozen=True)
class Type:
    """What a rank holds: placements in the order of the mesh's axes, local extents, scale."""

    at: tuple[str, ...]
    local: tuple[int, ...] | None
    scale: tuple[str, ...] = ()


@dataclasses.dataclass
class Verdict:
    """findings: names of what is wrong, none if the operation is accepted; its results' types.

    way: which of the decision's calls this is about.
    """

    findings: tuple[str, ...]
    results: list[Type]
    way: int = 0


def judged(recorded: dict, checker: str) -> list[Verdict]:
    """A verdict for each decision; accepted if one of the ways to call is."""
    found: list[Verdict | None] = [None] * len(recorded["rows"])
    ways = collections.Counter()
    for trace in traces(recorded):
        sizes = {axis["name"]: axis["size"] for axis in trace.document["meshes"][0]["axes"]}
        for position, verdict in zip(trace.sources, _of_trace(trace, list(sizes), checker)):
            row, best = recorded["rows"][position], found[position]
            verdict.way = ways[position]
            ways[position] += 1
            if len(row["calls"]) > 1 and not _assembles(row, verdict, sizes):
                verdict = Verdict(("another view",), [])
            if best is None or (best.findings and not verdict.findings):
                found[position] = verdict
    return found


def _assembles(row: dict, verdict: Verdict, sizes: dict[str, int]) -> bool:
    """Whether even blocks of the results make up the extents that the call has on one device."""
    for result, ours in zip(row["results"], verdict.results):
        whole = list(ours.local or ())
        for word, size in zip(ours.at, sizes.values()):
            if word.startswith("S("):
                whole[int(word[2 : word.index(")")])] *= size
        if whole != result["shape"]:
            return False
    return True


def _of_trace(trace: Trace, axes: list[str], checker: str) -> list[Verdict]:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "decisions.spmd.json"
        path.write_text(json.dumps(trace.document), encoding="utf-8")
        count = str(20 * len(trace.sources))
        report = output(
            [checker, "check", "--isolated", "--format=json", "--infer-partial", "--no-fold"]
            + ["--no-fixes", "--max-findings", count, str(path)]
        )
        dumped = output(
            [checker, "dump", "--stage=types", "--infer-partial", "--isolated", str(path)]
        )
    names: list[set[str]] = [set() for _ in trace.sources]
    report = json.loads(report)
    if unread := report["inputs"][0]["errors"]:
        raise ValueError(f"the checker cannot read its input: {unread[:3]}")
    for finding in report["findings"]:
        if finding["severity"] == "error":
            names[finding["places"][0]["op_index"]].add(finding["name"])
    known = types(dumped, axes)
    return [
        Verdict(tuple(sorted(found)), [known[name] for name in results if name in known])
        for found, results in zip(names, trace.results)
    ]


def types(text: str, axes: list[str]) -> dict[str, Type]:
    """The types of results, by name, in a dump of types."""
    found = {}
    for line in text.splitlines():
        definition = _DEFINITION.match(line.strip())
        if not definition:
            continue
        for part in re.split(r", (?=%)", definition[0].removesuffix(" = ")):
            if result := _RESULT.match(part):
                found[result[1]] = _type(result[2], axes)
    return found


def _type(text: str, axes: list[str]) -> Type:
    text, _, scale = text.partition(" scale ")
    at = {name: "?" for name in axes}
    for kind, names in _CLAIM.findall(text):
        for axis in re.findall(r"\w+", names):
            at[axis] = "R" if kind in ("I", "R|I", "Reduced") else kind
    local = None
    if shape := _SHAPE.search(text):
        local = []
        for dim, extent in enumerate(re.findall(r"[^,\s](?:[^,(]|\([^)]*\))*", shape[1])):
            size, _, on = extent.partition("@")
            local.append(int(size) if size.isdigit() else -1)
            names = re.findall(r"\w+", on)
            for axis in names:
                inside = names == sorted(names, key=axes.index)
                at[axis] = f"S({dim})" if inside else f"S({dim}) out of order"
    factors = tuple(sorted(re.findall(r"\w+", scale)))
    return Type(tuple(at[name] for name in axes), None if local is None else tuple(local), factors)
