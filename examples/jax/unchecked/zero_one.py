"""ZeRO-1: gradients are summed and scattered, each rank updates its rows, the rows are gathered."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

AXES = {"dp": 8}


def loss_of(w, x, y):
    return jnp.mean((jnp.sin(x @ w) - y) ** 2)


def train(w, momentum, x, y):
    ranks = lax.axis_size("dp")
    loss, grad = jax.value_and_grad(loss_of)(w, x, y)
    grad = lax.psum_scatter(grad, "dp", scatter_dimension=0, tiled=True) / ranks
    momentum = 0.9 * momentum + grad
    rows = w.shape[0] // ranks
    mine = lax.dynamic_slice_in_dim(w, lax.axis_index("dp") * rows, rows)
    mine = mine - 0.1 * momentum
    w = lax.all_gather(mine, "dp", axis=0, tiled=True)
    return w, momentum, lax.pmean(loss, "dp")


def program(mesh):
    step = jax.shard_map(train, mesh=mesh, in_specs=(P(), P("dp"), P("dp"), P("dp")),
                         out_specs=(P(), P("dp"), P()), check_vma=False)
    k = jax.random.split(jax.random.key(6), 4)
    return jax.jit(step), (jax.random.normal(k[0], (16, 5)), jax.random.normal(k[1], (16, 5)),
                           jax.random.normal(k[2], (24, 16)), jax.random.normal(k[3], (24, 5)))
