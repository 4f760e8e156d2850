"""The recorded program in memory, and as a trace.

Values are numbered when the text is written: parameters first, then results in program order.
"""

import dataclasses

from ..document import head, text
from .communication.mesh import Context, Mesh
from .operands import flatten
from .locations import Locations
from .values import Value


RESIZED = "@resized"  # how the body is named of what gives memory other extents


@dataclasses.dataclass(eq=False)
class Op:
    """One operation; operands are values, numbers, None, or lists of these."""

    name: str
    ins: list
    outs: list[Value]
    attrs: dict = dataclasses.field(default_factory=dict)
    kw: dict = dataclasses.field(default_factory=dict)
    mut: list[int] = dataclasses.field(default_factory=list)
    phase: str = "fwd"
    grad: bool = True
    loc: int | None = None
    scope: int | None = None
    bwd_of: "Op | None" = None
    rank_only: bool = False
    derived: bool = False  # names memory that another operation made; the program has none here
    context: Context | None = None
    first_node: int | None = None  # autograd's number of the first of several nodes
    call: int | None = None  # of a custom autograd function: the number of the call that it is in
    body: str | None = None  # of a call: a function of which only operands and results are known

    def runs_over_ranks(self) -> bool:
        """By the name of a group, or of axes: `group` of a group norm is a number."""
        return isinstance(self.attrs.get("group"), str) or "axis" in self.attrs

    def operands(self) -> list[Value]:
        """The values that it takes, lists flattened."""
        items = flatten([*self.ins, *self.kw.values()])
        return [item for item in items if isinstance(item, Value)]

    def take(self, value: Value, instead_of: Value) -> None:
        """Takes a value in the place of another one."""

        def swapped(item):
            if isinstance(item, (list, tuple)):
                return [swapped(one) for one in item]
            return value if item is instead_of else item

        self.ins = swapped(self.ins)
        self.kw = {key: swapped(item) for key, item in self.kw.items()}


@dataclasses.dataclass(eq=False)
class Program:
    """Everything that a trace document is made from."""

    mesh: Mesh
    rank: int
    framework: str
    locations: Locations = dataclasses.field(default_factory=Locations)
    groups: dict[str, dict] = dataclasses.field(default_factory=dict)
    params: list[Value] = dataclasses.field(default_factory=list)
    outputs: list[dict] = dataclasses.field(default_factory=list)
    ops: list[Op] = dataclasses.field(default_factory=list)
    extra: dict = dataclasses.field(default_factory=dict)
    symbols: dict[str, dict] = dataclasses.field(default_factory=dict)
    more_meshes: list[Mesh] = dataclasses.field(default_factory=list)
    stepped: bool = False  # whether an optimizer took its step at the end, even of nothing
    local: bool = True  # whether operations without a context of their own track kinds alone

    def from_outside(
        self,
        value: Value,
        name: str,
        kinds: dict[str, str],
        ahead: set[int] | frozenset = frozenset(),
    ) -> None:
        """Makes what an operation returns an input: how it came about says less of it than its
        kinds. Operations that make a value of `ahead` (ids) still take what was made: others are
        given another one of its form, as another sample of a batch.
        """
        made = dataclasses.replace(value)
        for op in self.ops:
            if any(id(one) in ahead for one in op.outs):
                op.take(made, value)
                for view in op.outs:
                    view.alias_of = made if view.alias_of is value else view.alias_of
            op.outs = [made if one is value else one for one in op.outs]
        value.alias_of = None
        value.claims = {"role": "input", "name": name, "type": kinds}
        self.params.append(value)

    def axes_of(self, op: Op) -> list[str]:
        """The axes along which a collective runs; none if its group is irregular."""
        if "axis" in op.attrs:
            axis = op.attrs["axis"]
            return axis if isinstance(axis, list) else [axis]
        return self.groups.get(op.attrs.get("group"), {}).get("axes", [])

    @property
    def context(self) -> Context:
        return self.mesh.context(self.local)

    @property
    def meshes(self) -> list[Mesh]:
        return [self.mesh, *self.more_meshes]


class _Contexts:
    """The table of contexts: the two of the program, then those of its operations."""

    def __init__(self, default: Context):
        self._default = default
        self._rows = {(default, True): 0, (default, False): 1}

    def index(self, op: Op) -> int:
        return self._rows.setdefault((op.context or self._default, op.grad), len(self._rows))

    def json(self) -> list[dict]:
        return [context.json() | ({} if grad else {"grad": False}) for context, grad in self._rows]


class Numbering:
    """The names of values in the text: `%0`, `%1`, ..."""

    def __init__(self, program: Program):
        self.ids: dict[int, str] = {}
        for value in program.params:
            self._add(value)
        for op in program.ops:
            for value in op.outs:
                self._add(value)

    def _add(self, value: Value) -> None:
        self.ids[id(value)] = f"%{len(self.ids)}"

    def __call__(self, value: Value) -> str:
        return self.ids[id(value)]

    def operand(self, item):
        if isinstance(item, Value):
            return self(item)
        if isinstance(item, list):
            return [self.operand(one) for one in item]
        return {"str": item} if isinstance(item, str) else item


def _value(value: Value, ids: Numbering, default_grad: bool) -> dict:
    entry = {"id": ids(value), "dtype": value.dtype, "shape": value.shape}
    claims = dict(value.claims)
    for key in ("gshape", "type", "spec", "scale"):
        if key in claims:
            entry[key] = claims.pop(key)
    if value.requires_grad is not None and value.requires_grad != default_grad:
        entry["requires_grad"] = value.requires_grad
    if value.grad_of is not None:
        entry["grad_of"] = ids(value.grad_of)
    if value.alias_of is not None:
        entry["alias_of"] = ids(value.alias_of)
    return entry | claims


class _GradRule:
    """The format's rule for whether a value requires a gradient when nothing is said."""

    def __init__(self, program: Program):
        self.needs: dict[int, bool] = {}
        for value in program.params:
            by_role = value.claims["role"] in ("input", "param") and value.floating
            said = value.requires_grad
            self.needs[id(value)] = by_role if said is None else said

    def result(self, op: Op) -> bool:
        """The default for the results of `op`; notes what was said instead."""
        operands = _values_in([*op.ins, *op.kw.values()])
        needs = op.grad and op.name != "aten.detach.default"
        default = needs and any(self.needs[id(value)] for value in operands)
        for value in op.outs:
            said = value.requires_grad
            self.needs[id(value)] = default if said is None else said
        return default


def _values_in(items) -> list[Value]:
    found = []
    for item in items:
        if isinstance(item, Value):
            found.append(item)
        elif isinstance(item, list):
            found += _values_in(item)
    return found


def _op(op: Op, ids: Numbering, default_grad: bool, context: int) -> dict:
    entry: dict = {"op": op.name}
    if op.ins:
        entry["in"] = [ids.operand(item) for item in op.ins]
    if op.kw:
        entry["kw"] = {name: ids.operand(item) for name, item in op.kw.items()}
    if op.attrs:
        entry["attrs"] = op.attrs
    if op.outs:
        entry["out"] = [_value(value, ids, default_grad) for value in op.outs]
    if op.mut:
        entry["mut"] = op.mut
    if op.body is not None:
        entry["regions"] = {"body": op.body}
    if op.phase != "fwd":
        entry["phase"] = op.phase
    if op.bwd_of is not None:
        entry["bwd_of"] = ids(op.bwd_of.outs[0])
    if context:
        entry["ctx"] = context
    if op.loc is not None:
        entry["loc"] = op.loc
    if op.scope is not None:
        entry["scope"] = op.scope
    if op.rank_only:
        entry["x_rank_only"] = True
    return entry


def _functions(program: Program) -> dict:
    """Functions without a body, as far as operations call them."""

    def bare(value: Value) -> dict:
        return {"dtype": value.dtype, "shape": value.shape}

    return {
        op.body: {
            "params": [{"id": f"%p{at}"} | bare(value) for at, value in enumerate(op.operands())],
            "out": [bare(value) for value in op.outs],
        }
        for op in program.ops
        if op.body is not None
    }


def document(program: Program) -> dict:
    """The trace as plain data."""
    ids, rule = Numbering(program), _GradRule(program)
    contexts = _Contexts(program.context)
    ops = [_op(op, ids, rule.result(op), contexts.index(op)) for op in program.ops]
    params = []
    for value in program.params:
        by_role = value.claims["role"] in ("input", "param") and value.floating
        params.append(_value(value, ids, by_role))
    outputs = []
    for output in program.outputs:
        named = {k: ids(v) if isinstance(v, Value) else v for k, v in output.items()}
        outputs.append(named)
    return {
        **head(program.framework, "dispatch"),
        "mode": "local" if program.local else "global",
        "phase": _phase(program),
        "world": program.mesh.world,
        "rank": program.rank,
        "op_count": len(program.ops),
        **({"symbols": program.symbols} if program.symbols else {}),
        "meshes": [mesh.json() for mesh in program.meshes],
        "groups": program.groups,
        **program.locations.json(),
        **({"functions": functions} if (functions := _functions(program)) else {}),
        "contexts": contexts.json(),
        "params": params,
        "outputs": outputs,
        **program.extra,
        "ops": ops,
    }


def _phase(program: Program) -> str:
    """How much of a training step the operations cover."""
    phases = {op.phase for op in program.ops}
    return (
        "step" if program.stepped or "opt" in phases else "joint" if "bwd" in phases else "forward"
    )


def dumps(program: Program) -> str:
    """The trace as text, the same for the same program."""
    return text(document(program))
