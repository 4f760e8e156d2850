"""A step that talks to the host: debug prints, a callback for metrics, a schedule from the host."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, PartitionSpec as P

history = []


def log(loss, norm):
    history.append((float(loss), float(norm)))


def host_rate(step):
    return np.float32(0.1 / (1 + int(step)))


def main(dp=4, tp=2, steps=2):
    mesh = jax.make_mesh((dp, tp), ("dp", "tp"), axis_types=(AxisType.Auto,) * 2)
    specs = {"w1": P(None, "tp"), "w2": P("tp", None)}

    def loss_fn(params, x, y):
        h = jax.nn.softplus(x @ params["w1"])
        out = lax.psum(h @ params["w2"], "tp")
        return jnp.mean((out - y) ** 2) / lax.axis_size("tp")

    def train_step(params, step, x, y):
        loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
        loss = lax.psum(loss, "tp")
        grads, loss = lax.pmean((grads, loss), "dp")
        square = sum(jnp.sum(g * g) for g in jax.tree.leaves(grads))
        norm = jnp.sqrt(lax.psum(square, "tp"))
        jax.debug.print("step {s} loss {l}", s=step, l=loss)
        jax.debug.callback(log, loss, norm)
        rate = jax.pure_callback(host_rate, jax.ShapeDtypeStruct((), jnp.float32), step)
        grads = jax.tree.map(lambda g: g / jnp.maximum(norm, 1.0), grads)
        params = jax.tree.map(lambda p, g: p - rate * g, params, grads)
        return params, step + 1, loss, norm

    step = jax.jit(jax.shard_map(train_step, mesh=mesh,
                                 in_specs=(specs, P(), P("dp"), P("dp")),
                                 out_specs=(specs, P(), P(), P()), check_vma=False))
    k = jax.random.split(jax.random.key(3), 4)
    params = {"w1": jax.random.normal(k[0], (6, 8)), "w2": jax.random.normal(k[1], (8, 6))}
    x, y = jax.random.normal(k[2], (8, 6)), jax.random.normal(k[3], (8, 6))
    count = jnp.int32(0)
    for _ in range(steps):
        params, count, loss, norm = step(params, count, x, y)
    return params, loss, norm


if __name__ == "__main__":
    main()
