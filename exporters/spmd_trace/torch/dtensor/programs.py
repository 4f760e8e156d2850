"""Decisions as programs for the checker: each operation with inputs of its own, many in a trace."""

import dataclasses

from torch.utils import _pytree as pytree

OPS = 400  # of one trace: reports are long where much is refused


@dataclasses.dataclass
class Trace:
    """A document, and for each of its operations the decision that it comes from."""

    document: dict
    sources: list[int]  # by position of the operation: position of the decision
    results: list[list[str]]  # likewise: the names of the results


def spec(at: list[str], axes: list[str], rank: int) -> tuple[dict, list]:
    """Kinds and partition spec of placements; of two axes on a dimension the first is outside."""
    kinds: dict[str, str] = {}
    dims: list[list[str]] = [[] for _ in range(rank)]
    for axis, word in zip(axes, at):
        kinds[axis] = "V" if word.startswith("S(") else word
        if word.startswith("S("):
            dims[int(word[2:-1])].append(axis)
    entries = [None if not on else on[0] if len(on) == 1 else on for on in dims]
    return kinds, entries


def _input(name: str, operand: dict, axes: list[str]) -> dict:
    kinds, entries = spec(operand["at"], axes, len(operand["local"]))
    value = {"id": name, "role": "input", "dtype": operand["dtype"], "shape": operand["local"]}
    value |= {"gshape": operand["shape"], "type": kinds}
    return value | ({"spec": entries} if any(entries) else {})


def _operation(row: dict, call: dict, prefix: str) -> dict:
    def named(leaf):
        return prefix + leaf[1:] if isinstance(leaf, str) and leaf.startswith("%") else leaf

    op = {"op": call["op"], "in": pytree.tree_map(named, call.get("in", []))}
    if call.get("attrs"):
        op["attrs"] = call["attrs"]
    op["out"] = []
    for i, result in enumerate(row["results"]):
        out = {"id": f"{prefix}r{i}"}  # its type is what is asked of the checker
        if "of" in result:
            out["alias_of"] = f"{prefix}{result['of']}"
        op["out"].append(out)
    if call.get("mut"):
        op["mut"] = call["mut"]
    return op


def traces(recorded: dict) -> list[Trace]:
    """The decisions about each mesh, `OPS` at a time."""
    found = []
    for mesh, axes in recorded["meshes"].items():
        trace = None
        for position, row in enumerate(recorded["rows"]):
            if row["mesh"] != mesh:
                continue
            if trace is None or len(trace.sources) >= OPS:
                trace = Trace(_document(mesh, axes), [], [])
                found.append(trace)
            _add(trace, position, row, list(axes))
    return found


def _document(mesh: str, axes: dict[str, int]) -> dict:
    sizes = [{"name": name, "size": size} for name, size in axes.items()]
    head = {"format": "spmd-trace", "version": "1.0", "mode": "global"}
    return head | {"meshes": [{"id": mesh, "axes": sizes}], "params": [], "ops": []}


def _add(trace: Trace, position: int, row: dict, axes: list[str]) -> None:
    """An operation, or one for each way in which its sizes could be meant."""
    for way, call in enumerate(row["calls"]):
        prefix = f"%{position}.{way}."
        for i, operand in enumerate(row["operands"]):
            trace.document["params"].append(_input(f"{prefix}{i}", operand, axes))
        op = _operation(row, call, prefix)
        trace.document["ops"].append(op)
        trace.sources.append(position)
        trace.results.append([out["id"] for out in op["out"]])
