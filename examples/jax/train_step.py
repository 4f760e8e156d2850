"""A whole training step: a loss in a shard_map on data and tensor ranks, gradient, clipping, Adam.

spmd-trace lint train_step.py
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = jax.make_mesh((2, 4), ("dp", "tp"), axis_types=(AxisType.Auto,) * 2)


def loss_fn(params, x, y):
    h = jax.nn.gelu(x @ params["w1"])
    out = lax.psum(h @ params["w2"], "tp") + params["bias"]
    return lax.pmean(jnp.mean((out - y) ** 2), "dp")


specs = {"w1": P(None, "tp"), "w2": P("tp", None), "bias": P()}
loss = jax.shard_map(loss_fn, mesh=mesh, in_specs=(specs, P("dp"), P("dp")), out_specs=P(),
                     check_vma=False)  # fmt: skip


def adam(params, state, grads):
    m, v, step = state
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
    grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, 1.0 / norm), grads)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
    v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, grads)
    params = jax.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), params, m, v)
    return params, (m, v, step + 1)


@jax.jit
def train_step(params, state, x, y):
    value, grads = jax.value_and_grad(loss)(params, x, y)
    params, state = adam(params, state, grads)
    return params, state, value


def main():
    k = jax.random.split(jax.random.key(0), 4)
    shapes = {"w1": (16, 32), "w2": (32, 16), "bias": (16,)}
    params = {
        name: jax.device_put(jax.random.normal(k[i], shape), NamedSharding(mesh, specs[name]))
        for i, (name, shape) in enumerate(shapes.items())
    }
    zeros = jax.tree.map(jnp.zeros_like, params)
    state = (zeros, zeros, jnp.zeros((), jnp.int32))
    x, y = jax.random.normal(k[3], (2, 8, 16))
    for _ in range(3):
        params, state, value = train_step(params, state, x, y)
        print(value)


if __name__ == "__main__":
    main()
