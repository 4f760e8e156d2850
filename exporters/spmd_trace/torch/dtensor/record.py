"""All decisions as one text, the same in every run."""

import collections
import contextlib
import json

import torch

from ..frameworks import cpu
from . import assignments
from .cases import cases
from .propagation import MESHES, RANKS, Asked, meshes
from .samples import Case


@contextlib.contextmanager
def ranks():
    """A fake process group, of which this process is the first rank."""
    with cpu.fake_ranks(0, RANKS):
        yield


def _row(case: Case, name: str, mesh, assignment) -> dict:
    asked = Asked(case, mesh, assignment)
    decision = asked.decide()
    row = {"case": case.name, "op": str(case.op), "mesh": name, "operands": asked.operands}
    row |= {"verdict": decision.verdict, "results": decision.results}
    if decision.verdict == "redistributes":
        row["wanted"] = [list(words) for words in decision.wanted]
    if decision.error:
        row["why"] = decision.error
    return row | {"calls": decision.calls}


def _rows_of(case: Case, known: dict) -> list[dict]:
    """The decisions about one case, first on one axis, then on two."""
    (size,) = MESHES["m4"].values()
    options = [sample.options(size, case.uneven) for sample in case.samples]

    def suggest(words):
        asked = Asked(case, known["m4"], [(word,) for word in words])
        found = asked.suggestion()
        return None if found is None else tuple(one[0] for one in found)

    single = assignments.one_axis(options, suggest)
    rows = [_row(case, "m4", known["m4"], assignment) for assignment in single]
    kept = [a for a, row in zip(single, rows) if row["verdict"] == "keeps"]
    others = [a for a, row in zip(single, rows) if row["verdict"] != "keeps"]
    if case.uneven:  # two axes may leave ranks without a block
        return rows
    for assignment in assignments.two_axes(kept, others, case.name):
        rows.append(_row(case, "m22", known["m22"], assignment))
    return rows


def recording(only: list[str] | None = None) -> dict:
    """The decisions of the installed torch about the cases, or about those named in `only`."""
    with ranks():
        known = meshes()
        chosen = [case for case in cases() if only is None or case.name in only]
        rows = [row for case in chosen for row in _rows_of(case, known)]
    version = torch.__version__.split("+")[0]
    return {"torch": version, "meshes": MESHES, "rows": rows}


def counts(recorded: dict) -> collections.Counter:
    """How many decisions there are of each kind."""
    return collections.Counter(row["verdict"] for row in recorded["rows"])


def dumps(recorded: dict) -> str:
    """One decision per line."""
    rows = ",\n ".join(json.dumps(row, allow_nan=False) for row in recorded["rows"])
    head = {key: value for key, value in recorded.items() if key != "rows"}
    return json.dumps(head)[:-1] + ', "rows": [\n ' + rows + "\n]}\n"
