"""A tensor-parallel MLP with a residual: columns, rows, one sum; the gradient is taken outside."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

AXES = {"dp": 2, "tp": 4}


def mlp(x, w1, b1, w2, b2):
    hidden = jax.nn.gelu(x @ w1 + b1)
    out = lax.psum(hidden @ w2, "tp")
    return x + out + b2


def loss_of(w1, b1, w2, b2, x, y):
    out = mlp(x, w1, b1, w2, b2)
    loss = jnp.mean((out - y) ** 2)
    return lax.pmean(loss, "dp")


def program(mesh):
    specs = (P(None, "tp"), P("tp"), P("tp", None), P(), P("dp"), P("dp"))
    loss = jax.shard_map(loss_of, mesh=mesh, in_specs=specs, out_specs=P(), check_vma=False)
    k = jax.random.split(jax.random.key(1), 6)
    normal = jax.random.normal
    args = (normal(k[0], (6, 16)), normal(k[1], (16,)), normal(k[2], (16, 6)),
            normal(k[3], (6,)), normal(k[4], (10, 6)), normal(k[5], (10, 6)))
    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2, 3))), args
