"""A recorded step that is edited: its values, who reads them, and ops that are put in."""

import copy

COLLECTIVES = {
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "collective_permute",
}


def bare(op):
    """`add` of `aten.add_.Tensor`."""
    words = op["op"].split(".")
    return (words[1] if len(words) > 1 else words[0]).rstrip("_")


def phase(op):
    return {"bwd": "backward", "opt": "optimizer"}.get(op.get("phase"), "forward")


def reads(operand):
    """The values of an operand, which may be a list."""
    if isinstance(operand, list):
        return [value for each in operand for value in reads(each)]
    return [operand] if isinstance(operand, str) else []


def operands(op):
    return [*op.get("in", []), *op.get("kw", {}).values()]


def renamed(operand, old, new):
    if isinstance(operand, list):
        return [renamed(each, old, new) for each in operand]
    return new if operand == old else operand


class Step:
    """A copy of a trace. Ops are named by their place in the original, whatever is put in."""

    def __init__(self, trace):
        self.trace = copy.deepcopy(trace)
        self.ops = self.trace["ops"]
        self.values = {param["id"]: param for param in self.trace["params"]}
        self.made_by = {}
        for index, op in enumerate(self.ops):
            for out in op.get("out", []):
                self.values[out["id"]] = out
                self.made_by[out["id"]] = index
        self.readers = {}
        for index, op in enumerate(self.ops):
            for value in {value for operand in operands(op) for value in reads(operand)}:
                self.readers.setdefault(value, []).append(index)
        mesh = self.trace["meshes"][0]
        self.sizes = {axis["name"]: axis["size"] for axis in mesh["axes"] if "size" in axis}
        self.added = 0

    def shape(self, value):
        return self.values[value]["shape"]

    def axes(self, op):
        """Over which a collective goes; nothing: not over axes of the first mesh."""
        attrs = op.get("attrs", {})
        axes = attrs.get("axis")
        if axes is None:
            group = self.trace.get("groups", {}).get(attrs.get("group"), {})
            axes = group.get("axes", []) if isinstance(group, dict) else []
        axes = [axes] if isinstance(axes, str) else axes
        return axes if all(axis in self.sizes for axis in axes) else []

    def ranks(self, axes):
        count = 1
        for axis in axes:
            count *= self.sizes[axis]
        return count

    def collectives(self, *names):
        """Of one tensor each, with the axes."""
        for index, op in enumerate(self.ops):
            if bare(op) not in (names or COLLECTIVES) or "in" not in op:
                continue
            if isinstance(op["in"][0], str) and len(op.get("out", [])) == 1 and self.axes(op):
                yield index, op

    def fresh(self):
        self.added += 1
        return f"%new{self.added}"

    def insert(self, at, name, value, extents=None, like=None, **attrs):
        """An op of one operand before the op at `at`; what it makes."""
        source, beside = self.values[value], like or self.ops[min(at, len(self.ops) - 1)]
        out = {"id": self.fresh(), "dtype": source["dtype"], "shape": extents or source["shape"]}
        op = {"op": name, "in": [value], "attrs": attrs, "out": [out]}
        op |= {key: beside[key] for key in ("phase", "ctx", "loc", "scope") if key in beside}
        self.ops.insert(at, op)
        self.trace["op_count"] += 1
        self.values[out["id"]] = out
        return out["id"]

    def redirect(self, old, new, begin, end=None):
        """What reads `old` from the op at `begin` on reads `new`."""
        for op in self.ops[begin:end]:
            if old not in [value for operand in operands(op) for value in reads(operand)]:
                continue
            op["in"] = renamed(op.get("in", []), old, new)
            if "kw" in op:
                op["kw"] = {key: renamed(each, old, new) for key, each in op["kw"].items()}
            for out in op.get("out", []):
                if out.get("alias_of") == old:
                    out["alias_of"] = new
        if end is None:
            for output in self.trace["outputs"]:
                if output["value"] == old:
                    output["value"] = new

    def become(self, op, name, operand=None, **attrs):
        """Another op in the place of this one, with the same results."""
        op["op"], op["attrs"] = name, attrs
        op["in"] = op["in"][:1] if operand is None else operand
        view = name == "aten.detach.default"
        for key in ("mut", "kw"):
            op.pop(key, None)
        for out in op["out"]:
            out.pop("type", None)
            if view:
                out["alias_of"] = op["in"][0]
            else:
                out.pop("alias_of", None)

    def is_pass(self, op):
        """In place of an op: its operand."""
        self.become(op, "aten.detach.default" if op.get("mut") else "aten.clone.default")
