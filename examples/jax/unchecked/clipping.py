"""Clipping by the global norm, with weights that are cut over tp and weights that are whole."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

AXES = {"dp": 2, "tp": 4}


def train(w1, w2, bias, x, y):
    def loss_of(w1, w2, bias):
        out = jnp.tanh(x @ w1) @ w2
        out = lax.psum(out, "tp") + bias
        return jnp.mean((out - y) ** 2) / lax.axis_size("tp")

    loss, (g1, g2, gb) = jax.value_and_grad(loss_of, (0, 1, 2))(w1, w2, bias)
    gb = lax.psum(gb, "tp")
    g1, g2, gb = lax.pmean((g1, g2, gb), "dp")
    square = lax.psum(jnp.sum(g1**2) + jnp.sum(g2**2), "tp")
    square = square + jnp.sum(gb**2)
    factor = jnp.minimum(1.0, 0.5 / jnp.sqrt(square))
    w1, w2, bias = w1 - factor * g1, w2 - factor * g2, bias - factor * gb
    return w1, w2, bias, lax.pmean(lax.psum(loss, "tp"), "dp")


def program(mesh):
    specs = (P(None, "tp"), P("tp", None), P())
    step = jax.shard_map(train, mesh=mesh, in_specs=(*specs, P("dp"), P("dp")),
                         out_specs=(*specs, P()), check_vma=False)
    k = jax.random.split(jax.random.key(13), 5)
    normal = jax.random.normal
    return jax.jit(step), (normal(k[0], (6, 16)), normal(k[1], (16, 3)), normal(k[2], (3,)),
                           normal(k[3], (10, 6)), normal(k[4], (10, 3)))
