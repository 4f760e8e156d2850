"""The text of a trace: its first keys, and how its lines are broken.

Keys stand in the order of the format's tables and each operation is one line, so that two
recordings can be compared with ordinary tools.
"""

import json
import math

from . import __version__

_ONE_PER_LINE = {"files", "locs", "scopes", "contexts", "params", "outputs", "ops"}


def head(framework: str, frontend: str) -> dict:
    """The keys that say what the document is and who made it."""
    producer = {"name": "spmd-trace", "version": __version__}
    return {
        "format": "spmd-trace",
        "version": "1.0",
        "producer": producer | {"framework": framework, "frontend": frontend},
    }


def number(value):
    """A Python number as JSON can hold it; anything else as it is."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"num": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
    return value


def numbered(document: dict) -> dict:
    """The same with values numbered in their order."""
    ids: dict[str, str] = {}
    for value in [
        *document["params"],
        *(out for op in document["ops"] for out in op.get("out", [])),
    ]:
        ids[value["id"]] = f"%{len(ids)}"

    def new(item):
        if isinstance(item, list):
            return [new(one) for one in item]
        return ids[item] if isinstance(item, str) else item

    def value(entry: dict) -> dict:
        keys = ("id", "grad_of", "alias_of", "value", "of")
        return entry | {key: new(entry[key]) for key in keys if key in entry}

    def operation(op: dict) -> dict:
        op = op | {key: new(op[key]) for key in ("in", "bwd_of") if key in op}
        op |= {"kw": {key: new(one) for key, one in op["kw"].items()}} if "kw" in op else {}
        op |= {"out": [value(one) for one in op["out"]]} if "out" in op else {}
        return {key: one for key, one in op.items() if key != "ctx" or one}

    rows = {key: [value(one) for one in document[key]] for key in ("params", "outputs")}
    return document | rows | {"ops": [operation(op) for op in document["ops"]]}


def text(document: dict) -> str:
    """The same bytes for the same document."""
    lines = []
    for key, value in document.items():
        if key in _ONE_PER_LINE and value:
            rows = ",\n    ".join(_compact(row) for row in value)
            lines.append(f'  "{key}": [\n    {rows}\n  ]')
        elif key == "functions" and value:
            rows = ",\n    ".join(f'"{name}": {_function(body)}' for name, body in value.items())
            lines.append(f'  "{key}": {{\n    {rows}\n  }}')
        else:
            lines.append(f'  "{key}": {_compact(value)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _function(body: dict) -> str:
    parts = []
    for key, value in body.items():
        if key in ("params", "ops") and value:
            rows = ",\n        ".join(_compact(row) for row in value)
            parts.append(f'"{key}": [\n        {rows}]')
        else:
            parts.append(f'"{key}": {_compact(value)}')
    return "{" + ",\n      ".join(parts) + "}"


def _compact(value) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
