"""Where JAX calls a value invariant and the checker does not: JAX runs it, and the devices hold
different ones."""

import jax
import jax.numpy as jnp
import numpy as np
import of_one_jax  # noqa: F401  what is inferred is of one version
import pytest
from jax import lax
from jax._src.core import ShardingTypeError
from jax.sharding import AxisType, PartitionSpec

X = jnp.asarray(np.random.default_rng(0).normal(size=(16, 8)), jnp.float32)


def pending(x):
    return lax.pcast(x, "tp", to="unreduced")


def reduced(x):
    return lax.pcast(x, "tp", to="reduced")


def mapped(function, spec):
    mesh = jax.make_mesh((4,), ("tp",), axis_types=(AxisType.Auto,))
    return jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=PartitionSpec())


def held(function) -> list[np.ndarray]:
    """What each device holds of a result that JAX agrees to call invariant."""
    result = jax.jit(mapped(function, PartitionSpec("tp")))(X)
    return [np.asarray(shard.data) for shard in result.addressable_shards]


VARYING = {
    "argsort": lambda x: jnp.argsort(x[:, 0]),
    "cond": lambda x: lax.cond(x[0, 0] > 0, lambda: jnp.ones(3), lambda: jnp.zeros(3)),
    "while": lambda x: lax.while_loop(
        lambda c: c[0] < jnp.sum(x > 0), lambda c: (c[0] + 1, c[1] * 2), (0, jnp.ones(3))
    )[1],
}
UNREDUCED = {
    "reduce_max": lambda x: jnp.max(x, 1),
    "argmax": lambda x: jnp.argmax(x, 1),
    "cumsum": lambda x: lax.cumsum(x, 0),
    "integer_pow 3": lambda x: lax.integer_pow(x, 3),
    "clamp": lambda x: lax.clamp(-1.0, x, 1.0),
    "rev": lambda x: lax.rev(x, (0,)),
    "where zero": lambda x: jnp.where(jnp.arange(8) > 3, x, 0.0),
    "gather": lambda x: jnp.take(x, jnp.arange(2), axis=0),
}


@pytest.mark.parametrize("name", VARYING)
def test_called_invariant_though_ranks_differ(name):
    first, *others = held(VARYING[name])
    assert any((first != one).any() for one in others)


@pytest.mark.parametrize("name", UNREDUCED)
def test_called_invariant_though_a_sum_is_pending(name):
    first, *others = held(lambda x: UNREDUCED[name](pending(x)))
    assert any((first != one).any() for one in others)


def test_called_unreduced_though_part_is_the_same_everywhere():
    """Ones beside a pending sum come out of the sum as four."""
    ones = held(lambda x: lax.psum(lax.concatenate([pending(x), jnp.ones((4, 8))], 0), "tp"))[0]
    assert (ones[4:] == 4).all()


@pytest.mark.parametrize(
    "function",
    [lambda w: reduced(w) @ reduced(w), lambda w: reduced(w) @ w, lambda w: jnp.max(reduced(w), 1)],
    ids=["dot", "dot with invariant", "reduce_max"],
)
def test_called_invariant_until_it_is_differentiated(function):
    scalar = mapped(lambda w: jnp.sum(function(w)), PartitionSpec())
    assert jax.eval_shape(scalar, jnp.ones((8, 8))).shape == ()
    with pytest.raises((ValueError, TypeError, NotImplementedError, ShardingTypeError)):
        jax.eval_shape(jax.grad(scalar), jnp.ones((8, 8)))
