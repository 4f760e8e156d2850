"""What the checker says of recorded programs: findings, and the types of all values."""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import tempfile

from ...checker import output

_DUMP = ["dump", "--stage=types", "--isolated"]
_BODY = re.compile(r"func @([\w.]+)\(")
_RESULT = re.compile(r"(%\d+)(?: grad_of %\d+)?: (.*)")
_SHAPE = re.compile(r"\w+\[([^\]]*)\]")
_CLAIM = re.compile(r"(\?|R\|I|Reduced|R|I|V|P(?:\(\w+\))?)@(\([\w, ]+\)|\w+)")


@dataclasses.dataclass
class Verdict:
    """findings: names of errors, none if the program is accepted; types: by body and value, the
    kind on each axis, or `S(dim)`, and `S(dim).n` for the n-th axis inside others."""

    findings: tuple[str, ...]
    types: dict[str, dict[str, dict[str, str]]]


def judged(texts: list[str], checker: str) -> list[Verdict]:
    """A verdict for each trace."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [pathlib.Path(folder) / f"{place}.spmd.json" for place in range(len(texts))]
        for path, text in zip(paths, texts):
            path.write_text(text, encoding="utf-8")
        found = []
        for start in range(0, len(paths), 200):
            found += _findings(paths[start : start + 200], checker)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
            dumped = threads.map(lambda path: output([checker, *_DUMP, path]), paths)
            return [Verdict(names, types(text)) for names, text in zip(found, dumped)]


def _findings(paths: list[pathlib.Path], checker: str) -> list[tuple[str, ...]]:
    options = ["--isolated", "--format=json", "--no-fold", "--no-fixes", "--max-findings=100000"]
    report = json.loads(output([checker, "check", *options, *paths]))
    for place, one in enumerate(report["inputs"]):
        if one["errors"]:
            raise ValueError(f"the checker cannot read {paths[place]}: {one['errors'][:3]}")
    names: list[set[str]] = [set() for _ in paths]
    for finding in report["findings"]:
        if finding["severity"] == "error":
            names[finding["input"]].add(finding["name"])
    return [tuple(sorted(one)) for one in names]


def types(text: str) -> dict[str, dict[str, dict[str, str]]]:
    """The types of results in a dump of types, by body; `main` is the program itself."""
    found: dict[str, dict[str, dict[str, str]]] = {"main": {}}
    body = "main"
    for line in text.splitlines():
        if opened := _BODY.match(line):
            body = opened[1]
            found[body] = {}
        elif line == "}":
            body = "main"
        elif line.lstrip().startswith("%") and " = " in line:
            for part in re.split(r", (?=%)", line.strip().split(" = ")[0]):
                if result := _RESULT.match(part):
                    found[body][result[1]] = kinds(result[2])
    return found


def kinds(text: str) -> dict[str, str]:
    """Kinds by axis of a type as the checker prints it."""
    at = {}
    if shape := _SHAPE.match(text):
        for dim, extent in enumerate(re.findall(r"[^,\s](?:[^,(]|\([^)]*\))*", shape[1])):
            names = re.findall(r"\w+", extent.partition("@")[2])
            at |= {axis: cut(dim, place) for place, axis in enumerate(names)}
    for kind, names in _CLAIM.findall(text):
        at |= {axis: kind for axis in re.findall(r"\w+", names)}
    return at


def cut(dim: int, place: int) -> str:
    """The word for the place-th axis, from the outermost, that cuts a dimension."""
    return f"S({dim})" + (f".{place}" if place else "")
