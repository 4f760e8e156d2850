"""Modules of StableHLO with Shardy, as jaxprs: what JAX lowers a jitted function to, read by the
MLIR bindings of jaxlib.

Each operation becomes the primitive that JAX would have lowered to it; a manual computation is a
shard_map, and groups of ranks are axes of its mesh. An operation without a primitive keeps its
name.
"""

import functools
import re

import jax
import numpy as np
from jax._src import core, source_info_util
from jax._src.interpreters import mlir
from jax.sharding import NamedSharding, PartitionSpec
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from .. import groups
from ..document import Program
from ..locations import Frames
from ..refused import Unrecordable
from ..numbers.sizes import Sizes, smaller
from . import hlo_ops
from .means import Means
from .shardy import Ranks, mesh_of, spec_of, specs_of


@functools.cache
def _primitive(name: str) -> core.Primitive:
    return core.Primitive(name)


@functools.cache
def _dtypes() -> dict[str, np.dtype]:
    """By the words of MLIR, as JAX writes them."""
    with mlir.make_ir_context(), ir.Location.unknown():
        found = {str(make()): dtype for dtype, make in mlir._dtype_to_ir_type.items()}
    return found | {"i1": np.dtype(bool)}  # and not the other dtypes that JAX writes so


_FRAME = re.compile(r'"((?:[^"\\]|\\.)*)"\("((?:[^"\\]|\\.)*)":(\d+):(\d+)(?: to (\d*):(\d+))?\)')
_NAME = re.compile(r'loc\("((?:[^"\\]|\\.)*)"')


@functools.lru_cache(maxsize=1 << 16)
def _source(text: str) -> source_info_util.SourceInfo:
    """Of the text of a location: frames, innermost first, below the name stack. The bindings give
    no parts of it."""
    frames = []
    for function, file, line, col, last, end in _FRAME.findall(text):
        frames.append((file, int(line), int(col), int(last or line), int(end or col), function))
    name = _NAME.match(text)
    # The function that was lowered is the first name, the primitive the last one.
    names = name[1].split("/")[:-1] if name else []
    names = names[1:] if names and names[0].startswith(("jit(", "pjit(")) else names
    stack = source_info_util.new_name_stack("/".join(names))
    return source_info_util.SourceInfo(Frames(frames), stack)


class Module:
    """A module: its mesh, its functions, and what was made of them."""

    def __init__(self, module):
        self.module = module  # whose operations are read
        self.functions, self.bodies, self.avals = {}, {}, {}
        meshes = []
        for operation in module.body.operations:
            if operation.operation.name == "sdy.mesh":
                meshes.append(mesh_of(operation))
            elif operation.operation.name == "func.func":
                self.functions[operation.name.value] = operation
        different = {(one.axis_names, one.axis_sizes) for one in meshes if one.size > 1}
        if not different:
            raise Unrecordable(
                "there is no mesh of more than one device in it: modules with `sdy.mesh` are read,"
                " which JAX writes unless jax_use_shardy_partitioner is off"
            )
        if len(different) > 1:
            raise Unrecordable("it has more than one mesh")
        self.mesh = next(one for one in meshes if one.size > 1)
        self.ranks = Ranks(self.mesh)

    def aval(self, type_) -> core.ShapedArray:
        if (found := self.avals.get(type_)) is None:
            if not isinstance(type_, ir.RankedTensorType):
                raise Unrecordable(f"a value of type {type_}, which is no tensor")
            word = str(type_.element_type)
            if word not in _dtypes():
                raise Unrecordable(f"a tensor of {word}")
            found = core.ShapedArray(tuple(type_.shape), _dtypes()[word])
            self.avals[type_] = found
        return found

    def function(self, name: str) -> core.ClosedJaxpr:
        """The body of a function; recursion, which JAX does not write, would not end."""
        if name not in self.bodies:
            block = self.functions[name].body.blocks[0]
            self.bodies[name] = Block(self).closed(block, block.arguments)
        return self.bodies[name]

    def main(self) -> tuple[core.ClosedJaxpr, list[str], list]:
        """The jaxpr, the names of its arguments, and their specs."""
        function = self.functions.get("main")
        if function is None:
            raise Unrecordable("there is no function `main` in it")
        names, specs = [], []
        attributes = function.attributes
        each = attributes["arg_attrs"] if "arg_attrs" in attributes else []
        for place, argument in enumerate(function.arguments):
            name = _NAME.match(str(argument.location))
            names.append(name[1] if name else f"arg{place}")
            said = each[place] if place < len(each) else {}
            specs.append(spec_of(said["sdy.sharding"]) if "sdy.sharding" in said else None)
        return self.function("main"), names, specs


class Block:
    """Equations of one block, and of what is put in its place."""

    def __init__(self, module: Module, outer: "Block | None" = None):
        self.module, self.outer = module, outer
        self.env, self.eqns, self.source = {}, [], None
        self.constants: list[tuple[core.Var, np.ndarray]] = []
        self.captured: dict = {}  # values from around, as variables of this block
        # what is a part of a rank's number: stride, and size if it is known
        self.numbers: dict = {}

    # --- values -----------------------------------------------------------------------------------

    def atom(self, value):
        found = self.env.get(value)
        if found is None and self.outer is not None:
            found = self.outer.atom(value)
            if isinstance(found, core.Var):  # else it is a number
                self.captured[value] = found
                found = core.Var(found.aval)
            self.env[value] = found
        return found

    def aval(self, value) -> core.ShapedArray:
        return self.module.aval(value.type)

    def result(self, value) -> core.Var:
        var = self.env[value] = core.Var(self.aval(value))
        return var

    def emit(self, name: str, invars, outvars, **params) -> None:
        self.eqns.append(core.new_jaxpr_eqn(list(invars), list(outvars), _primitive(name), params,
                                            core.no_effects, self.source))  # fmt: skip

    def made(self, name: str, invars, aval, **params) -> core.Var:
        """A value between operations."""
        var = core.Var(aval)
        self.emit(name, invars, [var], **params)
        return var

    # --- bodies -----------------------------------------------------------------------------------

    def closed(self, block, arguments) -> core.ClosedJaxpr:
        invars = [self.result(one) for one in arguments]
        results = self.run(block)
        variables, values = zip(*self.constants) if self.constants else ((), ())
        return core.ClosedJaxpr(self.jaxpr(invars, results, list(variables)), list(values))

    def jaxpr(self, invars, results, constvars=()) -> core.Jaxpr:
        info = core.DebugInfo("module", "module", None, None)
        return core.Jaxpr(list(constvars), invars, results, self.eqns, core.no_effects, info)

    def run(self, block) -> list:
        """What the terminator of a block gives."""
        for operation in block.operations:
            name = operation.operation.name
            if name in hlo_ops.RETURNS:
                return [self.atom(one) for one in operation.operands]
            self.source = _source(str(operation.location))
            hlo_ops.read(self, name, operation)
        return []

    def region(self, block) -> tuple[core.ClosedJaxpr, list]:
        """The body of a region, what it takes from around in front of its arguments; and that."""
        inner = Block(self.module, self)
        inner.source = self.source
        invars = [inner.result(one) for one in block.arguments]
        results = inner.run(block)
        extra = [inner.env[one] for one in inner.captured]
        constants = [var for var, _ in inner.constants]
        outside = [self.constant(array, var.aval) for var, array in inner.constants]
        jaxpr = inner.jaxpr([*constants, *extra, *invars], results)
        return core.ClosedJaxpr(jaxpr, []), [*outside, *inner.captured.values()]

    def constant(self, array, aval) -> core.Var:
        """An array that the module has in it."""
        var = core.Var(aval)
        self.constants.append((var, array))
        return var

    def manual(self, operation) -> None:
        """A manual computation as a shard_map; one that takes nothing is put in its place."""
        attributes, (block,) = operation.attributes, operation.regions[0].blocks
        if not list(operation.operands):
            for result, atom in zip(operation.results, self.run(block)):
                self.env[result] = atom
            return
        axes = re.findall(r'"((?:[^"\\]|\\.)*)"', str(attributes["manual_axes"]))
        closed, taken = self.region(block)
        ins = [self.atom(one) for one in operation.operands]
        outs = [self.result(one) for one in operation.results]
        specs = [PartitionSpec()] * len(taken) + specs_of(attributes["in_shardings"])
        self.emit("shard_map", [*taken, *ins], outs, jaxpr=closed.jaxpr, mesh=self.module.mesh,
                  in_specs=tuple(specs), out_specs=tuple(specs_of(attributes["out_shardings"])),
                  check_vma=False, newly_manual_axes=frozenset(axes))  # fmt: skip

    def constraint(self, operation) -> None:
        spec = spec_of(operation.attributes["sharding"])
        (operand,), (result,) = operation.operands, operation.results
        if spec is None or not self.aval(result).ndim or self.outer is not None:
            self.env[result] = self.atom(operand)  # the compiler's, or of blocks
            return
        sharding = NamedSharding(self.module.mesh, spec)
        self.emit(
            "sharding_constraint", [self.atom(operand)], [self.result(result)], sharding=sharding
        )


def record_module(data: bytes) -> tuple[Program, list[str]]:
    """The program of a module, as text, bytecode or an artifact of `jax.export`, judged without
    declarations; and the axes of which ranks have blocks of one element, which look like what is
    stretched."""
    module = Module(parsed(data))
    closed, names, specs = module.main()
    sizes = Sizes(sizes=dict(module.mesh.shape))
    sizes.of_transposes(closed.jaxpr)
    Means(sizes.sizes, sizes.powers).read(closed.jaxpr)
    program = groups.record(closed, module.mesh, names, sizes, specs)
    return program, list(smaller(closed.jaxpr))


def parsed(data: bytes):
    """The module of a file: text, bytecode, or what `jax.export` has serialized."""
    context = mlir.make_ir_context()
    if data.startswith(b"HloModule"):
        raise Unrecordable("this is HLO text: dump StableHLO, by JAX_DUMP_IR_TO")
    if data.startswith(b"ML\xefR"):
        return _bytecode(context, data)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _exported(context, data)
    return _checked(lambda: ir.Module.parse(text, context))


def _checked(parse):
    try:
        return parse()
    except ir.MLIRError as error:
        words = [str(one.message) for one in error.error_diagnostics]
        raise Unrecordable(
            f"this is no module of StableHLO: {words[0] if words else error}"
        ) from None


def _bytecode(context, data: bytes):
    with context:
        try:
            return stablehlo.deserialize_portable_artifact(context, data)
        except ir.MLIRError:  # it is not portable
            return _checked(lambda: ir.Module.parse(data))


def _exported(context, data: bytes):
    try:
        found = jax.export.deserialize(bytearray(data))
    except ImportError as error:
        raise Unrecordable(f"to read what jax.export has serialized: {error}") from None
    except Exception as error:  # of the reader of flatbuffers, whatever it is
        raise Unrecordable(
            f"this is neither a module nor what jax.export has serialized: {error}"
        ) from None
    return _bytecode(context, found.mlir_module_serialized)
