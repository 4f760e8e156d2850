"""Recording a function: it is traced by JAX, on shapes, without devices."""

import dataclasses
import pathlib

import jax
import jax.numpy as jnp
from jax._src import api_util, config, core
from jax._src.interpreters import partial_eval
from jax._src.tree_util import FlatTree
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from .document import Program
from .recorder import record_jaxpr


def _names(closed) -> list[str]:
    return list(closed.jaxpr.debug_info.arg_names or ())


def record(function, *args, mesh) -> Program:
    """The program of `function(*args)`; args are arrays or `jax.ShapeDtypeStruct`, with shardings on
    explicit axes. mesh: abstract, or of devices."""
    abstract = getattr(mesh, "abstract_mesh", mesh)
    with jax.sharding.use_abstract_mesh(abstract):
        closed = jax.make_jaxpr(function)(*args)
    return record_jaxpr(closed, abstract, names=_names(closed))


def record_gradients(function, *args, mesh, argnums=(0,)) -> Program:
    """The program of a scalar function and its gradients by some arguments, which are arrays."""
    abstract = getattr(mesh, "abstract_mesh", mesh)
    with jax.sharding.use_abstract_mesh(abstract):
        forward = jax.make_jaxpr(function)(*args)
        closed = jax.make_jaxpr(jax.value_and_grad(function, argnums))(*args)
    gradients = {1 + place: argnum for place, argnum in enumerate(argnums)}
    program = record_jaxpr(closed, abstract, names=_names(closed), gradients=gradients, loss=0)
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
    manual = AbstractMesh(
        mesh.axis_sizes, mesh.axis_names, axis_types=(AxisType.Manual,) * len(mesh.axis_names)
    )
    flat = FlatTree.flatten((tuple(one.aval(manual) for one in args), {}))
    info = api_util.debug_info("record_local", function, args, {})
    with (
        core.extend_axis_env_nd(tuple(mesh.shape.items())),
        jax.sharding.use_abstract_mesh(manual),
        config._check_vma(True),
    ):
        closed, _ = partial_eval.trace_to_jaxpr(function, flat, info)
    names = list(info.arg_names or ())
    return record_jaxpr(closed, manual, manual.axis_names, names, gradients)
