"""What finite differences of the loss say of the gradients that an optimizer gets.

`torch.script.gradcheck` changes one parameter at a time on all ranks. The loss is the sum of what
all backwards of the step begin with, so a right gradient is its slope, divided by the same number
for all parameters: the ranks that share a batch, those whose gradients are averaged, and what a
clip divides by.
"""

import json
import math
import pathlib
import re

from .document import text

_TOLERANCE = 0.05  # ratios within this part of each other are one
_EXACT = 0.015  # what is measured of a right gradient is nearer than this to what it should be
_STRAIGHT = 0.2  # of a slope: how much it may change across the point before it is no slope
_NEARER = 0.02  # of a slope: how much it may change with the distance at which it is taken
_NAMED = 3  # parameters of one finding that are named
_ABOVE = 20  # times the rounding error of the loss, for a slope to be known


def ratios(rows: list[dict]) -> dict[str, float]:
    """By parameter: its gradient over the slope of the loss, where that can be determined."""
    found = {}
    for row in rows:
        ahead, behind = row["slopes"]
        slope, promised = (ahead + behind) / 2, row["promised"]
        least = _ABOVE * row["noise"]
        if max(abs(slope), abs(promised)) < least:
            continue  # nothing depends on it
        if abs(ahead - behind) > _STRAIGHT * max(abs(slope), abs(promised)) + least:
            continue  # a kink, or a choice that the parameter makes
        nearer = sum(row.get("nearer", [])) / 2
        if "nearer" in row and abs(nearer - slope) > _NEARER * abs(slope) + least:
            continue
        found[row["name"]] = promised / slope if abs(slope) > least else math.inf
    return found


def shared(found: dict[str, float], world: int) -> float | None:
    """The ratio of right gradients: that of the mean over all ranks if a quarter of the parameters
    have it, else the one that most have. None if no half of them have one. All layers count as one,
    and so do all experts.
    """
    kinds = {re.sub(r"\d+", "*", f"{name} {ratio:.2g}"): ratio for name, ratio in found.items()}
    known = [ratio for ratio in kinds.values() if 0 < ratio < math.inf]
    clusters = [[one for one in known if abs(one - ratio) <= _TOLERANCE * ratio] for ratio in known]
    mean = [one for one in clusters if abs(_middle(one) * world - 1) <= _EXACT]
    for choice, least in ((mean, len(kinds) / 4), (clusters, len(kinds) / 2)):
        best = max(choice, key=len, default=[])
        if best and len(best) >= least:
            return _middle(best)
    return None


def _middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def relative(rows: list[dict], world: int) -> dict[str, float]:
    """By parameter: its ratio over that of right ones, or of the mean over all ranks: 1 where it is
    right."""
    known = ratios(rows)
    like = shared(known, world) or 1 / world
    found = {name: plain(ratio / like) for name, ratio in known.items()}
    for row in rows:
        if row["name"] in found and _one_sided(row, like):
            found[row["name"]] = 1.0
    return found


def _one_sided(row: dict, like: float) -> bool:
    """Whether the gradient is a slope on one side of a kink, or between the two."""
    slopes = row.get("nearer", row["slopes"])  # from which a curve is seen less
    slack = _EXACT * max(map(abs, slopes)) + _ABOVE * row["noise"]
    return min(slopes) - slack <= row["promised"] / like <= max(slopes) + slack


def plain(ratio: float) -> float:
    """A number of ranks, or one over it, as such."""
    if not math.isfinite(ratio):
        return ratio
    near = round(ratio) if abs(ratio) >= 1 else 1 / round(1 / ratio) if abs(ratio) > 1e-3 else 0.0
    if abs(ratio - 1) <= _TOLERANCE:
        return 1.0
    return float(near) if abs(ratio - near) <= max(_EXACT * abs(near), 1e-3) else round(ratio, 3)


def without(found: dict[str, float], alone: dict[str, float]) -> dict[str, float]:
    """What is left if a single rank already disagrees: the script means it so, or it is no matter
    of ranks."""
    return {name: ratio for name, ratio in found.items() if ratio == 1 or alone.get(name, 1) == 1}


def agree(trace: pathlib.Path, names: set[str]) -> bool:
    """Writes into a trace that gradients of these parameters are what one rank makes of them;
    whether these are all."""
    state(trace, dict.fromkeys(names, 1.0))
    document = json.loads(trace.read_text(encoding="utf-8"))
    return all(one["name"] in names for one in document["params"] if one.get("role") == "param")


def state(trace: pathlib.Path, found: dict[str, float]) -> list[str]:
    """Writes what was found into the parameters of a trace; the wrong ones that the recorded rank
    does not have."""
    document = json.loads(trace.read_text(encoding="utf-8"))
    names = {param.get("name") for param in document["params"] if param.get("role") == "param"}
    for param in document["params"]:
        if param.get("role") == "param" and param.get("name") in found:
            ratio = found[param["name"]]
            param["gradient_ratio"] = ratio if math.isfinite(ratio) else 1e9
    trace.write_text(text(document), encoding="utf-8")
    return [name for name, ratio in found.items() if ratio != 1 and name not in names]


def statements(found: dict[str, dict]) -> list[dict]:
    """What a trace says of what one rank makes otherwise (`unlike`): what is off by one factor
    stands together."""
    groups: dict[tuple, list[str]] = {}
    for words, row in found.items():
        what, name = words.split(" of ", 1)
        groups.setdefault((what, row["ratio"]), []).append(name)
    rows = []
    for (what, ratio), names in groups.items():
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        rows.append({"value": f"{what} of {', '.join(names[:_NAMED])}{more}", "ratio": ratio})
    return rows


def state_unlike(trace: pathlib.Path, found: dict[str, dict]) -> int:
    """Writes it into a trace, as its first operations, at the place of the first backward; how many
    these are."""
    document = json.loads(trace.read_text(encoding="utf-8"))
    rows = statements(found)
    backward = [op for op in document["ops"] if op.get("phase") in ("bwd", "opt") and "loc" in op]
    loc = {"loc": backward[0]["loc"]} if backward else {}
    document["ops"][:0] = [{"op": "unlike", "attrs": row} | loc for row in rows]
    document["op_count"] += len(rows)
    trace.write_text(text(document), encoding="utf-8")
    return len(rows)
