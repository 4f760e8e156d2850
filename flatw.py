
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, PartitionSpec as P

ROWS, COLUMNS = 2, 2
RANKS = ROWS * COLUMNS
mesh = Mesh(np.array(jax.devices()).reshape(ROWS, COLUMNS), ("a", "b"))
AXES = ("a", "b")

def body(w, moments, x, y):
    gradient, shapes = ravel_pytree(jax.grad(lambda w: jnp.mean((x @ w - y) ** 2))(w))
    count = gradient.size
    padded = jnp.pad(gradient, (-count % RANKS, 0))
    moments = 0.9 * moments + lax.psum_scatter(padded, AXES, tiled=True) / RANKS
    change = lax.all_gather(moments, AXES, tiled=True)[:count]
    return jax.tree.map(lambda one, by: one - 0.1 * by, w, shapes(change)), moments

step = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=(P(), P(AXES), P(AXES), P(AXES)),
                             out_specs=(P(), P(AXES)), check_vma=False))
state = np.random.default_rng(0)
x = state.standard_normal((8, 5)).astype(np.float32)
w, moments = jnp.ones(5), np.zeros(5 + -5 % RANKS, np.float32)
for _ in range(2):
    w, moments = step(w, moments, x, x.sum(1))
