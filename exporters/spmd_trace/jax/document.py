"""The recorded program in memory, and as a trace.

Values are numbered when the text is written, each body on its own: parameters first, then results
in program order.
"""

import dataclasses
import math
import typing

from ..document import head, number, text
from .locations import Locations
from .numbers.sizes import Sizes

if typing.TYPE_CHECKING:
    from .ownparts import OwnParts


@dataclasses.dataclass(eq=False)
class Value:
    """A tensor as one rank holds it.

    type: kinds by axis, an axis of unknown kind left out; spec: axes by dimension, where judged.
    derived: whether it may have a gradient; else R and I are equivalent.
    """

    dtype: str
    shape: list[int]
    type: dict[str, str]
    spec: list | None = None
    derived: bool = True
    grad_of: "Value | None" = None
    constant: float | int | bool | None = None  # of a scalar that the program writes as a number

    @property
    def floating(self) -> bool:
        return self.dtype[0] in "fc" or self.dtype.startswith("bf")

    def claim(self) -> dict:
        entry = {"type": self.type} if self.type else {}
        return entry if self.spec is None else entry | {"spec": self.spec}


@dataclasses.dataclass(eq=False)
class Op:
    """One operation; operands are values, numbers, or lists of these."""

    name: str
    ins: list
    outs: list[Value]
    attrs: dict = dataclasses.field(default_factory=dict)
    regions: dict[str, "Body"] = dataclasses.field(default_factory=dict)
    phase: str = "fwd"
    loc: int | None = None
    scope: int | None = None
    expected: bool = True  # whether the types of its results are JAX's


@dataclasses.dataclass(eq=False)
class Body:
    """Parameters, operations and results: of the program itself, or of a function in it."""

    name: str
    local: tuple[str, ...] = ()
    params: list[Value] = dataclasses.field(default_factory=list)
    names: list[str] = dataclasses.field(default_factory=list)  # of the parameters
    roles: list[str] = dataclasses.field(default_factory=list)
    ops: list[Op] = dataclasses.field(default_factory=list)
    results: list = dataclasses.field(default_factory=list)

    def add_param(self, value: Value, name: str = "", role: str = "input") -> Value:
        self.params.append(value)
        self.names.append(name)
        self.roles.append(role)
        return value

    def bodies(self) -> list["Body"]:
        """The functions that it uses, those that are used inside before those that use them."""
        found: list[Body] = []
        for op in self.ops:
            for body in op.regions.values():
                found += [one for one in [*body.bodies(), body] if one not in found]
        return found


@dataclasses.dataclass(eq=False)
class Program:
    """Everything that a trace document is made from."""

    axes: dict[str, int]
    framework: str
    main: Body = dataclasses.field(default_factory=lambda: Body("main"))
    locations: Locations = dataclasses.field(default_factory=Locations)
    outputs: list[dict] = dataclasses.field(default_factory=list)
    function_names: set[str] = dataclasses.field(default_factory=set)
    missing: list[str] = dataclasses.field(default_factory=list)  # what the trace does not say
    gradual: bool = False  # no types but those of declarations and claims
    parts: "OwnParts | None" = None  # of ranks, where nothing is declared
    blocks: dict = dataclasses.field(default_factory=dict)  # values that a shard_map left cut: how
    # Lists of what the turns of a loop make, by id: the list, its rows, and whether an operation
    # has made the list of them.
    rows: dict = dataclasses.field(default_factory=dict)
    sizes: Sizes = dataclasses.field(default_factory=Sizes)  # of axes, in its numbers

    @property
    def mode(self) -> str:
        if self.gradual:
            return "gradual"
        return "local" if set(self.main.local) == set(self.axes) else "global"


class _Numbering:
    """The names of the values of one body: `%0`, `%1`, ..."""

    def __init__(self, body: Body):
        values = [*body.params, *(value for op in body.ops for value in op.outs)]
        self.ids = {id(value): f"%{number}" for number, value in enumerate(values)}

    def __call__(self, value: Value) -> str:
        return self.ids[id(value)]

    def operand(self, item):
        if isinstance(item, Value):
            return self(item)
        if isinstance(item, list):
            return [self.operand(one) for one in item]
        return number(item)


def _result(value: Value, ids: _Numbering) -> dict:
    entry = {"id": ids(value), "dtype": value.dtype, "shape": value.shape}
    if value.grad_of is not None:
        entry["grad_of"] = ids(value.grad_of)
    return entry


def _op(op: Op, ids: _Numbering, context: int) -> dict:
    entry: dict = {"op": op.name}
    if op.ins:
        entry["in"] = [ids.operand(item) for item in op.ins]
    if op.attrs:
        entry["attrs"] = op.attrs
    if op.outs:
        entry["out"] = [_result(value, ids) for value in op.outs]
    if op.regions:
        entry["regions"] = {role: "@" + body.name for role, body in op.regions.items()}
    if op.phase != "fwd":
        entry["phase"] = op.phase
    if context:
        entry["ctx"] = context
    if op.loc is not None:
        entry["loc"] = op.loc
    if op.scope is not None:
        entry["scope"] = op.scope
    known = [one for one in op.outs if one.type and (one.derived or "I" not in one.type.values())]
    expect = [{"value": ids(one)} | one.claim() for one in known]
    if expect and op.expected:
        entry["expect"] = expect
    return entry


def _function(body: Body, context: int) -> dict:
    ids = _Numbering(body)
    return {
        "params": [_result(value, ids) | value.claim() for value in body.params],
        "ops": [_op(op, ids, 0) for op in body.ops],
        "results": [ids(value) for value in body.results],
        **({"ctx": context} if context else {}),
    }


def document(program: Program) -> dict:
    """The trace as plain data."""
    ids, main = _Numbering(program.main), program.main
    functions = main.bodies()
    locals_ = list(dict.fromkeys([main.local, *(body.local for body in functions)]))
    if program.gradual:  # where axes are local depends on what is known
        locals_ = [()]
    contexts = [{"mesh": "main"} | ({"local": list(axes)} if axes else {}) for axes in locals_]
    params = []
    for value, name, role in zip(main.params, main.names, main.roles):
        entry = _result(value, ids) | value.claim() | {"role": role}
        params.append(entry | ({"name": name} if name else {}))
    axes = [{"name": name, "size": size} for name, size in program.axes.items()]
    phases = {op.phase for body in [main, *functions] for op in body.ops}
    return {
        **head(program.framework, "jaxpr"),
        "dialect": "jax",
        "mode": program.mode,
        "phase": "joint" if "bwd" in phases else "forward",
        **({"missing": program.missing} if program.missing else {}),
        "world": math.prod(program.axes.values()),
        "op_count": len(main.ops),
        "meshes": [{"id": "main", "axes": axes}],
        **program.locations.json(),
        "contexts": contexts,
        "functions": {
            "@" + one.name: _function(one, 0 if program.gradual else locals_.index(one.local))
            for one in functions
        },
        "params": params,
        "outputs": [one | {"value": ids(one["value"])} for one in program.outputs],
        "ops": [_op(op, ids, 0) for op in main.ops],
    }


def dumps(program: Program) -> str:
    """The trace as text, the same for the same program."""
    return text(document(program))
