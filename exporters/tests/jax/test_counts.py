"""Means over what ranks count in their own data, which are averaged or summed."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import of_one_jax  # noqa: F401  what is inferred is of one version
import pytest
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P

from spmd_trace.jax import lint

pytestmark = pytest.mark.skipif(
    "SPMDLINT" not in os.environ, reason="SPMDLINT does not name a checker"
)

_MESH = Mesh(np.array(jax.devices()[:4]), ("data",))
_ROWS = jax.random.normal(jax.random.key(0), (16, 6))
_UNEVEN = np.arange(16) % 7 < 4  # of these ranks have 4, 3, 2 and 3
_EVEN = np.arange(16) % 4 < 3


def _errors(w, x):
    return jnp.sum((jnp.tanh(x @ w) - 0.3) ** 2, -1)


def _averaged(w, x, valid):
    weight = valid.astype(x.dtype)
    return lax.pmean(jnp.sum(_errors(w, x) * weight) / jnp.sum(weight), "data")


def _of_labels(w, x, valid):
    kept = jnp.where(valid, 1, -100) != -100
    total, count = jnp.sum(jnp.where(kept, _errors(w, x), 0.0)), kept.sum()
    return lax.psum(total / count, "data") / 4


def _counted_together(w, x, valid):
    count = lax.psum(jnp.sum(valid.astype(x.dtype)), "data")
    return lax.psum(jnp.sum(_errors(w, x) * valid) / count, "data")


def _summed_apart(w, x, valid):
    weight = valid.astype(x.dtype)
    total, count = jnp.sum(_errors(w, x) * weight), jnp.sum(weight)
    return lax.psum(total, "data") / jnp.maximum(lax.psum(count, "data"), 1.0)


def _outside(loss):
    specs = P(), P("data"), P("data")
    mapped = jax.shard_map(loss, mesh=_MESH, in_specs=specs, out_specs=P(), check_vma=False)
    return lambda w, x, valid: w - 0.1 * jax.grad(mapped)(w, x, valid)


def _inside(loss):
    def step(w, x, valid):
        return w - 0.1 * lax.pmean(jax.grad(loss)(w, x, valid), "data")

    specs = P(), P("data"), P("data")
    return jax.shard_map(step, mesh=_MESH, in_specs=specs, out_specs=P(), check_vma=False)


@pytest.mark.parametrize("gradient", [_outside, _inside])
@pytest.mark.parametrize(
    "loss,valid,unequal",
    [
        (_averaged, _UNEVEN, True),
        (_averaged, _EVEN, False),
        (_of_labels, _UNEVEN, True),
        (_counted_together, _UNEVEN, False),
        (_summed_apart, _UNEVEN, False),
    ],
)
def test_counts_that_differ_are_no_weights_of_means(gradient, loss, valid, unequal):
    found = lint(jax.jit(gradient(loss)), jnp.ones((6, 2)) / 6, _ROWS, jnp.asarray(valid))
    assert [one["name"] for one in found] == ["unequal-counts"] * unequal
    if unequal:
        line = loss.__code__.co_firstlineno + (2 if loss is _averaged else 3)
        assert found[0]["places"][0]["line"] == line


def test_counts_that_cannot_be_computed_are_unknown():
    """A key has no numbers outside of JAX."""

    def step(w, x, key):
        kept = jax.random.bernoulli(jax.random.fold_in(key, lax.axis_index("data")), 0.5, x.shape)

        def loss(w):
            return lax.pmean(jnp.sum(jnp.tanh(x @ w)) / jnp.sum(kept), "data")

        return w - 0.1 * lax.pmean(jax.grad(loss)(w), "data")

    specs = P(), P("data"), P()
    mapped = jax.shard_map(step, mesh=_MESH, in_specs=specs, out_specs=P(), check_vma=False)
    assert not lint(jax.jit(mapped), jnp.ones((6, 2)) / 6, _ROWS, jax.random.key(0))
