"""Gradients are summed in two stages on one axis: within groups of ranks, then across them."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, PartitionSpec as P


def main(dp=8, steps=2):
    mesh = jax.make_mesh((dp,), ("dp",), axis_types=(AxisType.Auto,))
    group = max(dp // 2, 1)
    inner = [list(range(i, i + group)) for i in range(0, dp, group)]
    outer = [list(range(i, dp, group)) for i in range(group)]

    def loss_fn(w, x, y):
        return jnp.mean((jnp.tanh(x @ w["in"]) @ w["out"] - y) ** 2)

    def mean(value):
        value = lax.psum(value, "dp", axis_index_groups=inner)
        value = lax.psum(value, "dp", axis_index_groups=outer)
        return value / lax.axis_size("dp")

    def step(w, x, y):
        loss, grads = jax.value_and_grad(loss_fn)(w, x, y)
        loss, grads = jax.tree.map(mean, (loss, grads))
        return jax.tree.map(lambda w, g: w - 0.1 * g, w, grads), loss

    step = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=(P(), P("dp"), P("dp")),
                                 out_specs=(P(), P()), check_vma=False))
    k = jax.random.split(jax.random.key(0), 4)
    w = {"in": jax.random.normal(k[0], (6, 12)), "out": jax.random.normal(k[1], (12, 2))}
    for i in range(steps):
        x, y = jax.random.normal(k[2], (16, 6)), jax.random.normal(k[3], (16, 2))
        w, loss = step(w, x, y)
        print(loss)
    return w, loss


if __name__ == "__main__":
    main()
