"""A convolution on images cut by rows: halos, group norm over all rows, and a global pool."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

AXES = {"dp": 2, "rows": 4}


def halo(x):
    n = lax.axis_size("rows")
    above = lax.ppermute(x[:, -1:], "rows", [(i, i + 1) for i in range(n - 1)])
    below = lax.ppermute(x[:, :1], "rows", [(i + 1, i) for i in range(n - 1)])
    return jnp.concatenate([above, x, below], axis=1)


def conv(x, w):
    return lax.conv_general_dilated(halo(x), w, (1, 1), ((0, 0), (1, 1)),
                                    dimension_numbers=("NHWC", "HWIO", "NHWC"))


def group_norm(x, gain):
    mean = lax.pmean(x.mean((1, 2), keepdims=True), "rows")
    var = lax.pmean(((x - mean) ** 2).mean((1, 2), keepdims=True), "rows")
    return (x - mean) * lax.rsqrt(var + 1e-5) * gain


def loss_of(params, x, y):
    h = jax.nn.relu(group_norm(conv(x, params["c1"]), params["gain"]))
    pooled = lax.pmean(h.mean((1, 2)), "rows")
    return lax.pmean(jnp.mean((pooled @ params["head"] - y) ** 2), "dp")


def program(mesh):
    mapped = jax.shard_map(loss_of, mesh=mesh, in_specs=(P(), P("dp", "rows"), P("dp")),
                           out_specs=P(), check_vma=False)

    def step(params, x, y):
        loss, grads = jax.value_and_grad(mapped)(params, x, y)
        return loss, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    k = jax.random.split(jax.random.key(6), 5)
    params = {"c1": jax.random.normal(k[0], (3, 3, 2, 4)) * 0.3, "gain": jnp.ones(4),
              "head": jax.random.normal(k[1], (4, 3))}
    return jax.jit(step), (params, jax.random.normal(k[2], (4, 8, 6, 2)),
                           jax.random.normal(k[3], (4, 3)))
