"""Data parallelism: each rank has its rows of the batch and all weights; gradients are averaged."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

AXES = {"dp": 8}


def loss_of(params, x, y):
    hidden = jnp.tanh(x @ params["w1"] + params["b1"])
    return jnp.mean((hidden @ params["w2"] - y) ** 2)


def train(params, x, y):
    loss, grads = jax.value_and_grad(loss_of)(params, x, y)
    grads = lax.pmean(grads, "dp")
    loss = lax.pmean(loss, "dp")
    params = jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)
    return params, loss


def program(mesh):
    step = jax.shard_map(train, mesh=mesh, in_specs=(P(), P("dp"), P("dp")),
                         out_specs=(P(), P()), check_vma=False)
    k = jax.random.split(jax.random.key(0), 4)
    params = {"w1": jax.random.normal(k[0], (6, 12)), "b1": jnp.zeros(12),
              "w2": jax.random.normal(k[1], (12, 3))}
    x, y = jax.random.normal(k[2], (32, 6)), jax.random.normal(k[3], (32, 3))
    return jax.jit(step), (params, x, y)
