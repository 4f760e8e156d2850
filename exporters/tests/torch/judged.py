"""What the checker says of a trace: the types of its values, and findings."""

import collections
import json
import os
import re
import subprocess

_CLAIM = re.compile(r"(\?|R\|I|Reduced|R|I|V|P(?:\(\w+\))?|S\(\d+\))@(\([\w, .]+\)|[\w.]+)")


def checker() -> str | None:
    """The checker's program, where the caller says that there is one."""
    return os.environ.get("SPMDLINT")


def kinds(path) -> dict[str, dict[str, str]]:
    """Kinds by axis of every parameter and result of a trace."""
    command = [checker(), "dump", "--stage=types", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        line = line.strip()
        if not line.startswith("%"):
            continue
        if declared := re.match(r"(%\d+) = (?:input|param|buffer|const|opt_state) (.*)", line):
            found[declared[1]] = _claims(declared[2])
            continue
        results = line.split(" = ")[0]
        for part in re.split(r", (?=%\d+[^,]*: )", results):
            name, _, type_ = part.partition(": ")
            found[name.split()[0]] = _claims(type_)
    return found


def findings(path) -> collections.Counter:
    """How often the checker reports each finding, places that it folds included."""
    command = [checker(), "check", "--format=concise", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found: collections.Counter = collections.Counter()
    for name, folded in re.findall(r": \w+\[([\w-]+)\]: .*?(?:\(\+(\d+)\))?$", text, re.M):
        found[name] += 1 + int(folded or 0)
    return found


def reports(path) -> list[dict]:
    """What the checker finds, but for hints, as it writes it for programs."""
    command = [checker(), "check", "--format=json", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = json.loads(text)
    assert found["inputs"][0]["read"], found["inputs"][0]["errors"]
    return [one for one in found["findings"] if one["severity"] != "info"]


def proved(path) -> dict[str, int]:
    """By axis, of how many parameters the gradient is proved."""
    command = [checker(), "check", "--format=json", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return json.loads(text)["inputs"][0]["proved"]


def _claims(text: str) -> dict[str, str]:
    """Kinds by axis; the suffix of an extent says that its axes vary, and so does `S(dim)`."""
    claims = {}
    for shape in re.findall(r"\w+\[([^\]]*)\]", text)[:1]:
        for axes in re.findall(r"@(\([\w, .]+\)|[\w.]+)", shape):
            claims |= {axis.split(".")[-1]: "V" for axis in re.findall(r"[\w.]+", axes)}
    for kind, axes in _CLAIM.findall(text):
        for axis in axes.strip("()").split(", "):
            claims[axis.split(".")[-1]] = "V" if kind.startswith("S") else kind
    return claims
