"""From a jaxpr to the program: values, operations, bodies.

A jaxpr says what is computed and, in the types of its variables, what JAX inferred about the ranks.
Calls that only name a part (`jit`, `custom_jvp`, `custom_vjp`) are put in their place; loops,
branches, rematerialisation and shard_map are kept as operations with bodies.
"""

import dataclasses
import operator

import jax
import numpy as np
from jax._src import core
from jax.sharding import AxisType

from ..document import number
from . import collectives, explicit, regions
from .attributes import attributes
from .document import Body, Op, Program, Value
from .locations import phase_of
from .pointwise import is_pointwise
from .numbers.asked import Number
from .numbers.sizes import Sized, words
from .refused import Unrecordable
from .states import Region

INLINED = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_lin": "call_jaxpr",
}


def call_of(eqn) -> tuple[core.ClosedJaxpr, list] | None:
    """The body of a call that only names a part, and what it takes."""
    if eqn.primitive.name == "custom_linear_solve":
        before, bodies = eqn.params["const_lengths"], eqn.params["jaxprs"]
        first = before.matvec + before.vecmat
        after = first + before.solve + before.transpose_solve
        return bodies.solve, [*eqn.invars[first : first + before.solve], *eqn.invars[after:]]
    if eqn.primitive.name not in INLINED:
        return None
    body = eqn.params[INLINED[eqn.primitive.name]]
    return core.ClosedJaxpr(body, ()) if isinstance(body, core.Jaxpr) else body, eqn.invars


class Recorder:
    """Writes one body; the recorders of the bodies inside share its program."""

    def __init__(self, program: Program, body: Body, region: Region):
        self.program, self.body, self.region = program, body, region
        self.values: dict[core.Var, Value] = {}
        self._eqn = None  # the equation that is recorded
        self.around = None  # the place of what has none

    def inside(self, name: str, region: Region) -> "Recorder":
        """A recorder of a function that the current equation uses."""
        taken, number = self.program.function_names, 0
        while (unique := f"{name}{number or ''}") in taken:
            number += 1
        taken.add(unique)
        inner = Recorder(self.program, Body(unique, region.manual), region)
        inner._eqn, inner.around = self._eqn, self.around
        return inner

    def parameters(self, variables, names=(), roles=(), values=()) -> None:
        """Declares the parameters of the body, as the types of these variables say."""
        for place, var in enumerate(variables):
            value = values[place] if values else self.region.value(var.aval)
            name = names[place] if place < len(names) else ""
            role = roles[place] if place < len(roles) else "input"
            self.values[var] = self.body.add_param(value, name, role)

    def operand(self, atom):
        """A value, or a number for what is written as one."""
        item = self.held(atom)
        if isinstance(item, Value) and (
            id(item) in self.program.blocks or id(item) in self.program.rows
        ):
            item = self.values[atom] = self.whole(item, atom.aval)
        return item

    def held(self, atom):
        """As `operand`, where it may be in the blocks of a shard_map inside of this one, or a list
        of which there are only rows."""
        if isinstance(atom, core.Literal):
            return self._literal(atom)
        value = self.values[atom]
        return value if value.constant is None else value.constant

    def whole(self, item: Value, aval) -> Value:
        if id(item) in self.program.rows:
            regions.stack(self, item)
        return regions.whole(self, item, aval) if id(item) in self.program.blocks else item

    def tensor(self, atom) -> Value:
        """As `operand`, where a number will not do."""
        item = self.operand(atom)
        if not isinstance(item, Value):
            item = self.full(item, atom.aval)
            if not isinstance(atom, core.Literal):
                self.values[atom] = item
        return item

    def full(self, item, aval) -> Value:
        """A tensor of one number."""
        value = self.region.value(aval, derived=False)
        self.fill(value, item)
        return value

    def fill(self, value: Value, item) -> None:
        """Defines a value as one number everywhere. Zeros are addends of a sum, too."""
        attrs = {"shape": value.shape, "dtype": value.dtype}
        if item == 0:
            self.emit("zeros", [], [value], attrs)
            if self.program.parts:
                self.program.parts.zero.add(id(value))
        elif isinstance(item, Sized):
            base = dataclasses.replace(value)
            self.emit("full", [], [base], attrs | {"fill_value": number(item.base)})
            self.emit("scale", [base], [value], {"by": words(item.powers)})
        else:
            self.emit("full", [], [value], attrs | {"fill_value": number(item)})

    def _literal(self, atom):
        if getattr(atom.val, "shape", ()):
            raise Unrecordable("a literal that is no scalar")
        if atom.aval.dtype == jax.dtypes.float0:
            return False
        item = atom.val.item() if hasattr(atom.val, "item") else atom.val
        if isinstance(item, Number):  # older versions keep what a program has written
            item = item.value
        if type(item) is int and jax.dtypes.issubdtype(atom.aval.dtype, np.floating):
            item = float(item)
        if isinstance(item, complex):
            return self.full(abs(item), atom.aval)
        return self.program.sizes.number(self._eqn, atom, item)

    def emit(self, name, ins, outs, attrs=None, regions=None, expected=True) -> Op:
        """Appends an operation that stands where the current equation stands."""
        op = Op(name, ins, outs, attrs or {}, regions or {}, expected=expected)
        if self._eqn is not None:
            stack = str(self._eqn.source_info.name_stack)
            op.loc = self.program.locations.loc(self._eqn.source_info)
            op.loc = self.around if op.loc is None else op.loc
            op.scope = self.program.locations.scope(stack)
            op.phase = phase_of(stack)
            if name == "div":
                op.attrs |= self.program.sizes.counts.get(id(self._eqn), {})
        self.body.ops.append(op)
        if self.program.parts:
            self.program.parts.learn(name, ins, outs, op.attrs)
        return op

    def results(self, eqn, derived: bool) -> list[Value]:
        """The results of an equation, as JAX types them."""
        outs = [self.region.value(var.aval, derived) for var in eqn.outvars]
        self.values |= dict(zip(eqn.outvars, outs))
        return outs

    def jaxpr(self, jaxpr, constants=()) -> list:
        """Records a body whose parameters are declared; its results."""
        for var, value in zip(jaxpr.constvars, constants):
            self._constant(var, value)
        outer = self._eqn
        for eqn in jaxpr.eqns:
            self._eqn = eqn
            self._equation(eqn)
        self._eqn = outer
        return [self.held(atom) for atom in jaxpr.outvars]

    def part(self) -> "Recorder":
        """A recorder of a call that is put in its place."""
        inner = Recorder(self.program, self.body, self.region)
        inner._eqn, inner.around = self._eqn, self.called_at()
        return inner

    def closed(self, closed, atoms, eqn) -> None:
        """Puts a call in its place."""
        inner = self.part()
        for var, atom in zip(closed.jaxpr.invars, atoms):
            item = self.held(atom)
            inner.values[var] = item if isinstance(item, Value) else inner.written(item, atom.aval)
        for var, atom in zip(eqn.outvars, inner.jaxpr(closed.jaxpr, closed.consts)):
            is_value = isinstance(atom, Value)
            self.values[var] = atom if is_value else self.written(atom, var.aval)

    def called_at(self) -> int | None:
        """Where the call stands, for what in it stands nowhere."""
        here = None if self._eqn is None else self.program.locations.loc(self._eqn.source_info)
        return self.around if here is None else here

    def written(self, item, aval) -> Value:
        """A number, or a tensor of one number, that has a name in a jaxpr."""
        value = self.region.value(aval, derived=False)
        value.constant = item
        return value

    def _constant(self, var, array) -> None:
        if getattr(array, "shape", None) == () and not jax.dtypes.issubdtype(
            array.dtype, jax.dtypes.prng_key
        ):
            self.values[var] = self.written(array.item(), var.aval)
            return
        aval = core.typeof(array)
        value = self.region.value(aval if isinstance(var.aval, core.ShapedArray) else var.aval)
        value.type = {axis: "I" for axis in self.region.sizes} | value.type
        self.values[var] = self.constant_param(value)

    def constant_param(self, value: Value) -> Value:
        if self.body is not self.program.main:
            raise Unrecordable("a constant array inside a body: pass it as an argument")
        return self.body.add_param(value, role="const")

    def _equation(self, eqn) -> None:
        name = eqn.primitive.name.removesuffix("_p")
        if not eqn.outvars:  # it prints, or calls the host
            return
        if (call := call_of(eqn)) is not None:
            self.closed(*call, eqn)
        elif name == "platform_index":  # branches for platforms compute the same: that of the CPU
            found = [place for place, one in enumerate(eqn.params["platforms"])
                     if one is None or "cpu" in one]  # fmt: skip
            (out,) = eqn.outvars
            self.values[out] = self.written(found[0] if found else 0, out.aval)
        elif self.region.untyped and name in ("reshard", "sharding_constraint"):
            # Inside of a shard_map the compiler has no say in where a block is.
            (atom,), (var,) = eqn.invars, eqn.outvars
            item = self.held(atom)
            self.values[var] = item if isinstance(item, Value) else self.written(item, var.aval)
        elif name in regions.RECORDED:
            regions.RECORDED[name](self, eqn)
        elif self.region.untyped and name in collectives.UNTYPED:
            collectives.UNTYPED[name](self, name, eqn)
        elif name in collectives.RECORDED:
            collectives.RECORDED[name](self, name, eqn)
        elif self.region.untyped and name == "convert_element_type" and _only_weak(eqn):
            self.values[eqn.outvars[0]] = self.tensor(eqn.invars[0])
        elif name == "convert_element_type" and not isinstance(self.operand(eqn.invars[0]), Value):
            item = self.operand(eqn.invars[0])
            is_float = jax.numpy.issubdtype(eqn.params["new_dtype"], jax.numpy.floating)
            self.values[eqn.outvars[0]] = self.written(
                float(item) if is_float and not isinstance(item, float) else item,
                eqn.outvars[0].aval,
            )
        elif self.region.auto and any(getattr(var.aval, "ndim", 0) for var in eqn.outvars):
            raise Unrecordable(
                f"`{name}` outside of a shard_map on axes that are left to the compiler: nothing"
                " says where its result is; use explicit axes"
            )
        elif self.region.explicit and name in explicit.RECORDED:
            explicit.RECORDED[name](self, name, eqn)
        elif name == "broadcast_in_dim" and not isinstance(self.operand(eqn.invars[0]), Value):
            (out,) = eqn.outvars
            self.values[out] = self.written(self.operand(eqn.invars[0]), out.aval)
        else:
            self.ordinary(name, eqn)

    def ordinary(self, name: str, eqn, outs: list[Value] | None = None) -> list[Value]:
        """A primitive whose operands and parameters say everything."""
        ins = [self.operand(atom) for atom in eqn.invars]
        shape = getattr(eqn.outvars[0].aval, "shape", ())
        spread = is_pointwise(name) and any(
            isinstance(item, Value) and atom.aval.shape == shape
            for item, atom in zip(ins, eqn.invars)
        )
        if not spread:  # then a number stands for a scalar alone
            ins = [
                self.tensor(atom) if getattr(atom.aval, "shape", ()) else self.operand(atom)
                for atom in eqn.invars
            ]
        if self.region.untyped and name in _ARITHMETIC and len(eqn.outvars) == 1:
            if all(type(item) in (int, float) for item in ins):
                (var,) = eqn.outvars
                self.values[var] = self.written(_ARITHMETIC[name](*ins), var.aval)
                return []
        derived = any(isinstance(item, Value) and item.derived for item in ins)
        derived &= name != "stop_gradient"
        outs = self.results(eqn, derived) if outs is None else outs
        params = dict(eqn.params)
        if eqn.invars and name in ("slice", "gather"):
            params["whole"] = eqn.invars[0].aval.shape
            ins[0] = self.tensor(eqn.invars[0])
        if name in _NEEDS_TENSOR:
            ins[0] = self.tensor(eqn.invars[0])
        attrs = attributes(name, params, ins, outs)
        if self.region.explicit:
            if is_pointwise(name):
                ins = explicit.aligned(self, eqn, ins, outs)
            if name in ("pad", "slice", "concatenate", "dynamic_slice", "gather"):
                explicit.check_cuts(name, eqn, ins)
            ins = explicit.joined(self, ins, outs)
        if name == "integer_pow":
            ins = [*ins, attrs.pop("y")]
        if name == "polygamma" and not isinstance(ins[0], Value):
            ins, attrs = ins[1:], {"n": round(ins[0])}
        name = name.replace("-", "_")
        parts, by = self.program.parts, _sizes_of(name, ins)
        if parts and (cut := parts.cut(name, ins, outs)):
            self.emit("convert", [cut[0]], outs, cut[1])
        elif parts and (own := parts.numbers(name, ins)):
            self._emit_own_numbers(own, outs)
        elif by:
            self._emit_scaled(name, ins, outs, by)
        else:
            self.emit(name, ins, outs, attrs)
        return outs

    def _emit_own_numbers(self, own: tuple[list[str], int, int], outs: list[Value]) -> None:
        """A rank's part of the numbers from 0, or that of a rank before it."""
        axes, extent, turned = own
        whole = dataclasses.replace(outs[0], shape=[extent])
        attrs = {"dtype": whole.dtype, "dimension": 0, "shape": whole.shape}
        self.emit("iota", [], [whole], attrs, expected=False)
        if turned:
            first, whole = whole, dataclasses.replace(whole)
            self.emit("roll", [first], [whole], {"shifts": [turned], "dims": [0]}, expected=False)
        self.emit("convert", [whole], outs, {"axis": axes, "dst": "S(0)"})

    def _emit_scaled(self, name: str, ins: list, outs: list[Value], by: dict[str, int]) -> None:
        """A product or quotient with a number that has sizes of axes in it: the number, then the
        sizes."""
        ins = [item.base if isinstance(item, Sized) else item for item in ins]
        middle = dataclasses.replace(outs[0])
        if isinstance(ins[0], Value) and ins[1] == 1.0:
            middle = ins[0]
        else:
            self.emit(name, ins, [middle], {}, expected=False)
        self.emit("scale", [middle], outs, {"by": words(by)})


def _sizes_of(name: str, ins: list) -> dict[str, int]:
    """The powers of axes by which numbers multiply the result."""
    by: dict[str, int] = {}
    for place, item in enumerate(ins if name in ("mul", "div") else []):
        for axis, power in item.powers.items() if isinstance(item, Sized) else ():
            by[axis] = by.get(axis, 0) + (-power if name == "div" and place == 1 else power)
    return {axis: power for axis, power in by.items() if power}


def _only_weak(eqn) -> bool:
    """Whether a conversion changes nothing but how a literal beside its result is promoted."""
    (atom,), (var,) = eqn.invars, eqn.outvars
    return isinstance(atom, core.Var) and atom.aval.dtype == var.aval.dtype


# Of numbers, as of the order of a function in its derivative.
_ARITHMETIC = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}
_NEEDS_TENSOR = {"broadcast_in_dim", "reshape", "squeeze", "copy", "convert_element_type"}


def record_jaxpr(closed, mesh, manual=(), names=(), gradients=None, loss=None) -> Program:
    """The program of a closed jaxpr over a mesh.

    manual: axes that are manual in all of it, as in the body of a shard_map.
    gradients: which result is the gradient of which argument, by position; loss: which is the loss.
    """
    if not hasattr(core, "ManualAxisType"):
        raise Unrecordable(
            f"what jax {jax.__version__} infers about ranks is not recorded: pip install "
            "'jax>=0.10.2', or `lint` the function, which needs no types"
        )
    region = Region.of_mesh(mesh)
    if manual:
        types = {axis: AxisType.Manual for axis in region.sizes}
        region = Region(region.sizes, types)
    program = Program(dict(mesh.shape), f"jax {jax.__version__}", Body("main", region.manual))
    recorder = Recorder(program, program.main, region)
    entry = regions.entry_values(closed.jaxpr, region) if region.auto else ()
    recorder.parameters(closed.jaxpr.invars, names, values=entry)
    results = recorder.jaxpr(closed.jaxpr, closed.consts)
    add_outputs(program, results, gradients, loss)
    return program


def add_outputs(program: Program, results: list, gradients=None, loss=None) -> None:
    for place, item in enumerate(results):
        if not isinstance(item, Value):
            continue
        output = {"value": item}
        if gradients and place in gradients:
            argument = program.main.params[gradients[place]]
            if item.spec == argument.spec:  # else JAX left it where it was made
                item.grad_of = argument
        if place == loss:
            output["role"] = "loss"
        program.outputs.append(output)
