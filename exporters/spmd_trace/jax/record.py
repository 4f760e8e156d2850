"""Recording a function: it is traced by JAX, on shapes, without devices."""

import contextlib
import dataclasses
import functools
import gc
import json
import pathlib
import tempfile
import warnings

import jax
import jax.numpy as jnp
from jax._src import api_util, config, core
from jax._src.interpreters import partial_eval
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from ..checker import find, missing, output
from . import groups
from .numbers import counts, sizes
from .numbers.asked import watched
from .document import Op, Program, dumps
from .recorder import record_jaxpr
from .refused import Unrecordable
from .runs import onedevice
from .runs.arguments import name_of, of_arrays
from .unchecked import first_mesh, is_unchecked
from .versions import use_abstract_mesh


def _names(closed) -> list[str]:
    return list(closed.jaxpr.debug_info.arg_names or ())


def _uncollected(record):
    """A recording makes objects of which nearly all are kept: to look for others takes longer than
    all that it does with them."""

    @functools.wraps(record)
    def recorded(*args, **kwargs):
        was = gc.isenabled()
        gc.disable()
        try:
            return record(*args, **kwargs)
        finally:
            if was:
                gc.enable()

    return recorded


@_uncollected
def _recorded(
    function, args, mesh, gradual=False, specs=(), names=None, made=None, values=None, **more
) -> Program:
    """made: its jaxpr and what it asked, if that is there already; values: the arrays of a call."""

    def trace(mesh):
        with use_abstract_mesh(mesh):
            return jax.make_jaxpr(function)(*[_on(mesh, one) for one in args])

    closed, asked = watched(lambda: trace(mesh)) if made is None else made
    names = _names(closed) if names is None else names
    if not (gradual or is_unchecked(closed.jaxpr)):
        return record_jaxpr(closed, mesh, names=names, **more)

    def whole(closed, asked, there) -> Program:
        found = sizes.of_program(trace, closed, there, asked)
        found.fewer = {
            size: there.shape[axis] for axis, size in mesh.shape.items() if size > there.shape[axis]
        }
        if values is not None:
            found.counts = counts.divisions(closed, values, there)
        return groups.record(closed, there, names, found, specs)

    fewer = sizes.smaller(closed.jaxpr)
    with contextlib.suppress(Exception), sizes.with_sizes(fewer):
        if fewer:  # unless the program is not for fewer ranks
            resized = sizes.resized(mesh)
            return whole(*watched(lambda: trace(resized)), resized)
    return whole(closed, asked, mesh)


def _on(mesh, argument):
    """The argument, cut the same way in a mesh of other sizes."""
    sharding = getattr(argument, "sharding", None)
    if not isinstance(argument, jax.ShapeDtypeStruct) or not isinstance(sharding, NamedSharding):
        return argument
    moved = NamedSharding(mesh, sharding.spec)
    return jax.ShapeDtypeStruct(argument.shape, argument.dtype, sharding=moved)


def record(function, *args, mesh) -> Program:
    """The program of `function(*args)`; args are arrays or `jax.ShapeDtypeStruct`, with shardings
    on explicit axes. mesh: abstract, or of devices."""
    abstract = getattr(mesh, "abstract_mesh", mesh)
    sizes.is_itself(abstract)
    return _recorded(function, args, abstract)


@_uncollected
def record_call(function, args, kwargs) -> Program | None:
    """The program of a call, whose arguments may be trees with arrays in them. It is judged without
    declarations. None if it has no shard_map."""
    called, arrays, leaves = of_arrays(function, args, kwargs)
    paths = [path for path, _ in jax.tree.leaves_with_path((args, kwargs))]
    shardings = [getattr(leaves[place], "sharding", None) for place in arrays]
    named = [one if isinstance(one, NamedSharding) else None for one in shardings]
    avals = [jax.ShapeDtypeStruct(leaves[place].shape, leaves[place].dtype, sharding=sharding)
             for place, sharding in zip(arrays, named)]  # fmt: skip
    made = watched(lambda: jax.make_jaxpr(called)(*avals))
    mesh = first_mesh(made[0].jaxpr)
    if mesh is None:
        return None
    specs = [one and one.spec for one in named]
    return _recorded(called, avals, mesh.abstract_mesh, gradual=True, specs=specs, made=made,
                     values=[leaves[place] for place in arrays],
                     names=[name_of(function, paths[place]) for place in arrays])  # fmt: skip


def lint(function, *args, confirm=False, **kwargs) -> list[dict]:
    """The findings of the call `function(*args, **kwargs)`, which is traced and not made, as the
    JSON output of `spmdlint check` lists them. confirm: it is made as well, on its mesh and, traced
    for one device, on one; what differs is a finding."""
    program = record_call(function, args, kwargs)
    if program is None:
        raise Unrecordable("there is no shard_map in it")
    if (checker := find()) is None:
        raise FileNotFoundError(missing())
    if confirm:
        _confirm(program, function, args, kwargs)
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "call.spmd.json"
        trace.write_text(dumps(program), encoding="utf-8")
        return json.loads(output([checker, "check", "--format=json", trace]))["findings"]


def _confirm(program: Program, function, args, kwargs) -> None:
    try:
        rows = onedevice.confirmed(function, args, kwargs)
    except onedevice.NotComparable as error:
        warnings.warn(f"not compared with one device: {error}", stacklevel=3)
        return
    loc = None
    if rows and (place := onedevice.place_of(function)) is not None:
        path, line, name = place["path"], place["line"], place["func"]
        loc = program.locations.add((path, line, name), path, {"line": line}, name, None)
    program.main.ops[:0] = [Op("unlike", [], [], row, loc=loc) for row in rows]


def record_gradients(function, *args, mesh, argnums=(0,)) -> Program:
    """The program of a scalar function and its gradients by some arguments, which are arrays."""
    abstract = getattr(mesh, "abstract_mesh", mesh)
    sizes.is_itself(abstract)
    with use_abstract_mesh(abstract):
        forward = jax.make_jaxpr(function)(*args)
    gradients = {1 + place: argnum for place, argnum in enumerate(argnums)}
    program = _recorded(jax.value_and_grad(function, argnums), args, abstract,
                        gradients=gradients, loss=0)  # fmt: skip
    # JAX puts the body of such a function in its place, without a mark.
    if _brings_derivative(forward.jaxpr):
        program.missing.append("derivatives")
    return program


def _brings_derivative(jaxpr) -> bool:
    """Whether a function outside of JAX, whose own are right, says what its derivative is."""
    for eqn in jaxpr.eqns:
        body = eqn.params.get("call_jaxpr")
        if eqn.primitive.name in ("custom_vjp_call", "custom_jvp_call"):
            file = body.jaxpr.debug_info.func_filename or ""
            if not pathlib.Path(file).is_relative_to(pathlib.Path(jax.__file__).parent):
                return True
    return any(map(_brings_derivative, core.subjaxprs(jaxpr)))


@dataclasses.dataclass(frozen=True)
class Local:
    """An argument as one rank holds it: axes on which it is not invariant are V, P or Reduced."""

    shape: tuple[int, ...]
    dtype: type = jnp.float32
    kinds: tuple[tuple[str, str], ...] = ()  # of axes

    def aval(self, mesh) -> core.ShapedArray:
        """Its type in a mesh of manual axes."""

        def of(word: str) -> frozenset[str]:
            return frozenset(axis for axis, kind in self.kinds if kind == word)

        states = core.ManualAxisType(varying=of("V"), unreduced=of("P"), reduced=of("Reduced"))
        cut = PartitionSpec(*[None] * len(self.shape))
        sharding = NamedSharding(mesh, cut)
        dtype = jnp.dtype(self.dtype)
        return core.ShapedArray(self.shape, dtype, sharding=sharding, manual_axis_type=states)


def record_local(function, *args: Local, mesh, gradients=None) -> Program:
    """The body of a shard_map alone: a program in which all axes are local.

    gradients: which results are gradients of which arguments, by position.
    """
    from jax._src.tree_util import FlatTree  # of the newest JAX alone

    manual = AbstractMesh(
        mesh.axis_sizes, mesh.axis_names, axis_types=(AxisType.Manual,) * len(mesh.axis_names)
    )
    flat = FlatTree.flatten((tuple(one.aval(manual) for one in args), {}))
    info = api_util.debug_info("record_local", function, args, {})
    with (
        core.extend_axis_env_nd(tuple(mesh.shape.items())),
        use_abstract_mesh(manual),
        config._check_vma(True),
    ):
        closed, _ = partial_eval.trace_to_jaxpr(function, flat, info)
    names = list(info.arg_names or ())
    return record_jaxpr(closed, manual, manual.axis_names, names, gradients)
