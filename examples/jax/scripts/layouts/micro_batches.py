"""Gradients are added up in a scan, summed over the ranks, and divided by both numbers at once."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, PartitionSpec as P


def loss_fn(p, x, y):
    return jnp.mean((jax.nn.relu(x @ p["w1"]) @ p["w2"] - y) ** 2)


def main(batch=4, steps=2, micro=3):
    mesh = jax.make_mesh((batch,), ("batch",), axis_types=(AxisType.Auto,))

    def train(p, momentum, x, y):
        xs, ys = (one.reshape(micro, -1, one.shape[-1]) for one in (x, y))

        def turn(carry, xy):
            total, grads = carry
            value, g = jax.value_and_grad(loss_fn)(p, *xy)
            return (total + value, jax.tree.map(jnp.add, grads, g)), None

        zeros = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, p))
        (total, grads), _ = lax.scan(turn, zeros, (xs, ys))
        grads = jax.tree.map(lambda g: lax.psum(g, "batch") / (micro * batch), grads)
        loss = lax.pmean(total / micro, "batch")
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        return jax.tree.map(lambda a, m: a - 0.1 * m, p, momentum), momentum, loss

    step = jax.jit(jax.shard_map(train, mesh=mesh, in_specs=(P(), P(), P("batch"), P("batch")),
                                 out_specs=(P(), P(), P()), check_vma=False))
    k = jax.random.split(jax.random.key(0), 4)
    p = {"w1": jax.random.normal(k[0], (6, 12)), "w2": jax.random.normal(k[1], (12, 2))}
    momentum = jax.tree.map(jnp.zeros_like, p)
    x, y = jax.random.normal(k[2], (60, 6)), jax.random.normal(k[3], (60, 2))
    for _ in range(steps):
        p, momentum, loss = step(p, momentum, x, y)
        print(loss)
    return p, momentum, loss


if __name__ == "__main__":
    main()
