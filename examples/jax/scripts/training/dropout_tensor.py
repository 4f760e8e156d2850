"""Dropout in a tensor-parallel block: a mask for a rank's hidden units, and one for the output."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, PartitionSpec as P


def drop(keep, x, rate):
    return jnp.where(keep, x / (1 - rate), 0.0)


def main(tp=4, steps=2):
    mesh = jax.make_mesh((tp,), ("tp",), axis_types=(AxisType.Auto,))

    def loss_fn(p, key, x, y):
        hidden_key, out_key = jax.random.split(key)
        h = jax.nn.relu(x @ p["up"])
        keep = jax.random.bernoulli(hidden_key, 0.8, (x.shape[0], 32))
        keep = lax.dynamic_slice_in_dim(keep, lax.axis_index("tp") * h.shape[1], h.shape[1], 1)
        out = lax.psum(drop(keep, h, 0.2) @ p["down"], "tp")
        out = drop(jax.random.bernoulli(out_key, 0.9, out.shape), out, 0.1)
        return jnp.mean((x + out - y) ** 2)

    specs = {"up": P(None, "tp"), "down": P("tp")}
    loss_of = jax.shard_map(loss_fn, mesh=mesh, in_specs=(specs, P(), P(), P()), out_specs=P(),
                            check_vma=False)

    @jax.jit
    def step(p, key, x, y):
        loss, grads = jax.value_and_grad(loss_of)(p, key, x, y)
        return jax.tree.map(lambda a, g: a - 0.3 * g, p, grads), loss

    k = jax.random.split(jax.random.key(0), 4)
    p = {"up": jax.random.normal(k[0], (8, 32)), "down": jax.random.normal(k[1], (32, 8))}
    x, y = jax.random.normal(k[2], (16, 8)), jax.random.normal(k[3], (16, 8))
    for i in range(steps):
        p, loss = step(p, jax.random.fold_in(jax.random.key(7), i), x, y)
        print(loss)
    return p, loss


if __name__ == "__main__":
    main()
