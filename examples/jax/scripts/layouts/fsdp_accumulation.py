"""Fully sharded parameters, gradients accumulated in a scan, clipping by the norm of all ranks."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P

MICRO = 3


def forward(params, x):
    full = jax.tree.map(lambda p: lax.all_gather(p, "fsdp", tiled=True), params)
    h = jnp.tanh(x @ full["w1"] + full["b1"])
    return h @ full["w2"]


def main(fsdp=4, steps=2):
    mesh = Mesh(np.array(jax.devices()[:fsdp]), ("fsdp",))
    tx = optax.sgd(0.2, momentum=0.9)

    def loss_fn(params, x, y):
        return jnp.mean((forward(params, x) - y) ** 2)

    def step(params, opt_state, xs, ys):
        def micro(total, batch):
            loss, grads = jax.value_and_grad(loss_fn)(params, *batch)
            return jax.tree.map(jnp.add, total, (loss, grads)), None

        zero = (jnp.float32(0), jax.tree.map(jnp.zeros_like, params))
        (loss, grads), _ = lax.scan(micro, zero, (xs, ys))
        loss, grads = jax.tree.map(lambda v: v / MICRO, (loss, grads))
        grads = jax.tree.map(lambda g: g / lax.axis_size("fsdp"), grads)
        square = sum(jnp.sum(g ** 2) for g in jax.tree.leaves(grads))
        norm = jnp.sqrt(lax.psum(square, "fsdp"))
        grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, 0.5 / norm), grads)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, lax.pmean(loss, "fsdp"), norm

    k = jax.random.split(jax.random.key(0), 3)
    params = {"w1": jax.random.normal(k[0], (8, 16)), "b1": jnp.ones(16),
              "w2": jax.random.normal(k[1], (16, 4))}
    opt_state = tx.init(params)
    cut = P("fsdp")
    step = jax.jit(jax.shard_map(step, mesh=mesh,
                                 in_specs=(cut, cut, P(None, "fsdp"), P(None, "fsdp")),
                                 out_specs=(cut, cut, P(), P()), check_vma=False),
                   donate_argnums=(0, 1))
    for i in range(steps):
        kx, ky = jax.random.split(jax.random.key(i))
        xs, ys = jax.random.normal(kx, (MICRO, 8, 8)), jax.random.normal(ky, (MICRO, 8, 4))
        params, opt_state, loss, norm = step(params, opt_state, xs, ys)
        print(loss, norm)
    return params, loss, norm


if __name__ == "__main__":
    main()
