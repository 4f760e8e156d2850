"""Small functions, each with operands of every state: what is compared one at a time.

A case applies one or a few primitives to one, two or three operands. Floats are invariant, varying,
reduced or unreduced on an axis, integers invariant or varying.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AbstractMesh

from ..record import Local

ONE_AXIS = AbstractMesh((4,), ("tp",))
TWO_AXES = AbstractMesh((2, 4), ("dp", "tp"))
FLOAT_STATES = ("I", "V", "Reduced", "P")
INTEGER_STATES = ("I", "V")


@dataclasses.dataclass(frozen=True)
class Case:
    """A function and its operands as (shape, dtype); gradients: whether it is differentiated too;
    communicates: whether it names the axis, so that how it is written depends on the states."""

    name: str
    function: Callable
    operands: tuple
    gradients: bool
    communicates: bool = False
    two_axes: bool = False


@dataclasses.dataclass(frozen=True)
class Sample:
    """A case with a state for each operand on each axis, such as `V I` for one operand on two
    axes."""

    case: Case
    mesh: AbstractMesh
    states: tuple[tuple[str, ...], ...]

    @property
    def name(self) -> str:
        return f"{self.case.name} [{', '.join(' '.join(one) for one in self.states)}]"

    def arguments(self, states=None) -> list[Local]:
        """The operands in these states, or in those of the sample."""
        axes = self.mesh.axis_names
        return [
            Local(shape, dtype, tuple(zip(axes, one)))
            for (shape, dtype), one in zip(self.case.operands, states or self.states)
        ]


CASES: list[Case] = []
A, B, S = ((4, 8), jnp.float32), ((4, 8), jnp.float32), ((), jnp.float32)
SQUARE = ((4, 4), jnp.float32)
INDEX = ((3, 1), jnp.int32)


def _add(name, function, *operands, gradients=True, **more) -> None:
    CASES.append(Case(name, function, operands, gradients, **more))


for _name in (
    "sin",
    "exp",
    "log1p",
    "tanh",
    "sqrt",
    "rsqrt",
    "logistic",
    "erf",
    "abs",
    "neg",
    "sign",
):
    _add(_name, getattr(lax, _name), A, two_axes=_name in ("sin", "neg"))
_add("floor", lax.floor, A, gradients=False)
_add("is_finite", lax.is_finite, A, gradients=False)
_add("integer_pow 3", lambda x: lax.integer_pow(x, 3), A)
_add("square", lax.square, A)
_add("convert", lambda x: lax.convert_element_type(x, jnp.bfloat16), A)
_add("reduce_precision", lambda x: lax.reduce_precision(x, 8, 10), A)
_add("stop_gradient", lax.stop_gradient, A, gradients=False)
_add("times a number", lambda x: x * 2.0, A)
_add("plus a number", lambda x: x + 1.0, A)
_add("over a number", lambda x: x / 4.0, A)
_add("relu", jax.nn.relu, A)
_add("gelu", jax.nn.gelu, A)
_add("softmax", partial(jax.nn.softmax, axis=-1), A)
_add("logsumexp", partial(jax.nn.logsumexp, axis=-1), A)
_add("clamp", lambda x: lax.clamp(-1.0, x, 1.0), A)
_add("where zero", lambda x: jnp.where(jnp.arange(8) > 3, x, 0.0), A)

_add("transpose", lambda x: lax.transpose(x, (1, 0)), A)
_add("reshape", lambda x: lax.reshape(x, (32,)), A, two_axes=True)
_add("broadcast_in_dim", lambda x: lax.broadcast_in_dim(x, (2, 4, 8), (1, 2)), A)
_add("expand_dims", lambda x: lax.expand_dims(x, (1,)), A)
_add("squeeze", lambda x: lax.squeeze(x, (0,)), ((1, 8), jnp.float32))
_add("slice", lambda x: lax.slice(x, (1, 0), (3, 8)), A)
_add("rev", lambda x: lax.rev(x, (0,)), A)
_add("pad", lambda x: lax.pad(x, 0.0, ((1, 0, 0), (0, 2, 0))), A)
_add("split", lambda x: lax.split(x, (3, 5), 1), A)
_add("copy", lax.copy_p.bind, A)
_add("roll", lambda x: jnp.roll(x, 1, 0), A)
_add("tile", lambda x: jnp.tile(x, (2, 1)), A)

_add("reduce_sum", lambda x: jnp.sum(x, 0), A, two_axes=True)
_add("mean", lambda x: jnp.mean(x, 1), A)
_add("reduce_max", lambda x: jnp.max(x, 1), A)
_add("reduce_min", lambda x: jnp.min(x, 1), A)
_add("reduce_prod", lambda x: jnp.prod(x, 1), A)
_add("argmax", lambda x: jnp.argmax(x, 1), A, gradients=False)
_add("cumsum", lambda x: lax.cumsum(x, 0), A, two_axes=True)
_add("cumprod", lambda x: lax.cumprod(x, 0), A)
_add("cummax", lambda x: lax.cummax(x, 0), A)
_add("cumlogsumexp", lambda x: lax.cumlogsumexp(x, 0), A)
_add("sort", lambda x: lax.sort(x, dimension=1), A)
_add("argsort", lambda x: jnp.argsort(x, 1), A, gradients=False)
_add("top_k", lambda x: lax.top_k(x, 2), A)
_add("reduce_window_sum", lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 2), (2, 2), "VALID"), A)
_add("one_hot", lambda i: jax.nn.one_hot(i, 5), ((3,), jnp.int32), gradients=False)
_add("fft", lambda x: jnp.abs(jnp.fft.fft(x)), A, gradients=False)
_add("cholesky", lax.linalg.cholesky, SQUARE, gradients=False)

for _name in ("add", "sub", "mul", "div", "max", "min", "pow", "atan2", "add_any"):
    _function = jax._src.ad_util.add_any_p.bind if _name == "add_any" else getattr(lax, _name)
    _add(_name, _function, A, B, two_axes=_name in ("add", "mul"))
_add("gt", lax.gt, A, B, gradients=False)
_add("add broadcast", lambda x, b: x + b, A, ((8,), jnp.float32))
_add("scaled by a scalar", lambda x, s: x * s, A, S)
_add("dot", lambda x, w: x @ w, A, ((8, 4), jnp.float32), two_axes=True)
_add("dot batched", lambda x, w: jnp.einsum("bij,bjk->bik", x, w),
     ((2, 4, 8), jnp.float32), ((2, 8, 4), jnp.float32))  # fmt: skip
_add("outer", lambda x, y: x[:, None] * y[None, :], ((4,), jnp.float32), ((8,), jnp.float32))
_add("linear then relu", lambda x, w: jax.nn.relu(x @ w), A, ((8, 4), jnp.float32))
_add("concatenate", lambda x, y: lax.concatenate([x, y], 0), A, B, two_axes=True)
_add("stack", lambda x, y: jnp.stack([x, y]), A, B)
_add("conv", lambda x, k: lax.conv(x, k, (1, 1), "SAME"),
     ((2, 3, 8, 8), jnp.float32), ((4, 3, 3, 3), jnp.float32))  # fmt: skip
_add("triangular_solve", lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True), SQUARE, A)
_add("dynamic_update_slice", lambda x, y: lax.dynamic_update_slice(x, y, (1, 0)),
     A, ((2, 8), jnp.float32))  # fmt: skip
_add("select", lambda x, y: jnp.where(x > 0, x, y), A, B)
_add("optimization_barrier", lambda x, y: lax.optimization_barrier((x, y)), A, B)
_add("layer_norm", lambda x, g: (x - jnp.mean(x, -1, keepdims=True)) * g, A, ((8,), jnp.float32))
_add("add sin", lambda x, y: jnp.sin(x) + y, A, B)
_add("sort pair", lambda x, y: lax.sort((x, y), num_keys=1), A, B, gradients=False)

_add("where", lambda c, x, y: jnp.where(c, x, y), ((4, 8), jnp.bool_), A, B)
_add("gather", lambda x, i: jnp.take(x, i[:, 0], axis=0), A, INDEX)
_add("take_along_axis", lambda x, i: jnp.take_along_axis(x, i, 0), A, ((2, 8), jnp.int32))
_add("dynamic_slice", lambda x, i: lax.dynamic_slice(x, (i, 0), (2, 8)), A, ((), jnp.int32))
_add("dynamic_index", lambda x, i: lax.dynamic_index_in_dim(x, i, 0, False), A, ((), jnp.int32))
_add("scatter", lambda x, i, y: x.at[i[:, 0]].set(y), A, INDEX, ((3, 8), jnp.float32))
_add("scatter_add", lambda x, i, y: x.at[i[:, 0]].add(y), A, INDEX, ((3, 8), jnp.float32))
_add("scatter_max", lambda x, i, y: x.at[i[:, 0]].max(y), A, INDEX, ((3, 8), jnp.float32),
     gradients=False)  # fmt: skip
_add("bernoulli", lambda s: jax.random.bernoulli(jax.random.key(s), 0.5, (4,)),
     ((), jnp.uint32), gradients=False)  # fmt: skip
_add(
    "normal",
    lambda s: jax.random.normal(jax.random.key(s), (4,)),
    ((), jnp.uint32),
    gradients=False,
)

_add("scan", lambda c, x: lax.scan(lambda c, x: (c * x, c + x), c, x), ((8,), jnp.float32), A)
_add("scan of constants", lambda w, x: lax.scan(lambda c, x: (c + w * x, None), x[0], x)[0],
     ((8,), jnp.float32), A)  # fmt: skip
_add("scan from zero", lambda x: lax.scan(lambda c, x: (c + x, None), jnp.zeros(8), x)[0], A)
_add("while",
     lambda n, x: lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, x)),
     ((), jnp.int32), A, gradients=False)  # fmt: skip
_add("cond", lambda c, x, y: lax.cond(c, lambda: jnp.sin(x), lambda: y * 2), ((), jnp.bool_), A, B)
_add("switch", lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jnp.tanh], x), ((), jnp.int32), A)
_add("checkpoint", jax.checkpoint(lambda x, y: jnp.sin(x * y)), A, B)
_add("jit", jax.jit(lambda x, y: jnp.cos(x) - y), A, B)


@jax.custom_vjp
def _doubled(x):
    return jnp.sin(x)


_doubled.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (g * jnp.cos(x) * 2,))


@jax.custom_jvp
def _straight(x):
    return jnp.round(x)


_straight.defjvp(lambda primals, tangents: (_straight(*primals), tangents[0]))
_add("custom_vjp", _doubled, A)
_add("custom_jvp", _straight, A)

_TURN = [(rank, (rank + 1) % 4) for rank in range(4)]
_MOVES = {
    "psum": lambda x: lax.psum(x, "tp"),
    "pmean": lambda x: lax.pmean(x, "tp"),
    "pmax": lambda x: lax.pmax(lax.stop_gradient(x), "tp"),
    "all_gather": lambda x: lax.all_gather(x, "tp"),
    "all_gather tiled": lambda x: lax.all_gather(x, "tp", axis=1, tiled=True),
    "all_gather to reduced": lambda x: lax.all_gather(x, "tp", tiled=True, to="reduced"),
    "all_gather to invarying": lambda x: lax.all_gather(x, "tp", tiled=True, to="invarying"),
    "psum_scatter": lambda x: lax.psum_scatter(x, "tp"),
    "psum_scatter tiled": lambda x: lax.psum_scatter(x, "tp", scatter_dimension=1, tiled=True),
    "all_to_all": lambda x: lax.all_to_all(x, "tp", 0, 1),
    "all_to_all tiled": lambda x: lax.all_to_all(x, "tp", 0, 1, tiled=True),
    "ppermute": lambda x: lax.ppermute(x, "tp", _TURN),
    "pcast to varying": lambda x: lax.pcast(x, "tp", to="varying"),
    "pcast to reduced": lambda x: lax.pcast(x, "tp", to="reduced"),
    "pcast to unreduced": lambda x: lax.pcast(x, "tp", to="unreduced"),
    "plus the rank": lambda x: x + lax.axis_index("tp"),
    "gather then product": lambda x: x @ lax.all_gather(x, "tp", tiled=True, to="reduced").T,
    "sum of squares": lambda x: lax.psum(jnp.sum(x * x), "tp"),
}
for _name, _function in _MOVES.items():
    _gradients = _name != "pmax"
    _add(_name, _function, A, gradients=_gradients, communicates=True, two_axes=True)


def _states(dtype) -> tuple[str, ...]:
    return FLOAT_STATES if jnp.issubdtype(dtype, jnp.floating) else INTEGER_STATES


def samples() -> Iterator[Sample]:
    """Every case in every state of its operands on one axis, a part of them on two."""
    for case in CASES:
        kinds = [_states(dtype) for _, dtype in case.operands]
        for states in itertools.product(*kinds):
            yield Sample(case, ONE_AXIS, tuple((state,) for state in states))
        if case.two_axes:
            yield from _on_two_axes(case, kinds)


def _on_two_axes(case: Case, kinds) -> Iterator[Sample]:
    """All pairs of states for one operand; for two, all on one axis with another one on the
    other."""
    if len(kinds) == 1:
        for states in itertools.product(*kinds, repeat=2):
            yield Sample(case, TWO_AXES, (states,))
        return
    inner = list(itertools.product(*kinds))
    for place, states in enumerate(inner):
        other = inner[(7 * place + 3) % len(inner)]
        yield Sample(case, TWO_AXES, tuple(zip(other, states)))
