"""The whole step in one shard_map: gradients are averaged by hand, optax runs on every rank."""

from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import AxisType, PartitionSpec as P


def init(key, sizes=(10, 32, 32, 3)):
    keys = jax.random.split(key, len(sizes))
    return [{"w": jax.random.normal(k, (a, b)) / a**0.5, "b": jnp.zeros(b)}
            for k, a, b in zip(keys, sizes[:-1], sizes[1:])]


def predict(params, x):
    for layer in params[:-1]:
        x = jax.nn.silu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def loss_fn(params, batch):
    x, y = batch
    return jnp.mean(jnp.square(predict(params, x) - y))


def main(dp=8, steps=2):
    mesh = jax.make_mesh((dp,), ("dp",), axis_types=(AxisType.Auto,))
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-1, 2, 10)
    tx = optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(schedule, weight_decay=1e-2))
    params = init(jax.random.key(0))
    opt_state = tx.init(params)

    @partial(jax.jit, donate_argnums=(0, 1))
    @partial(jax.shard_map, mesh=mesh, in_specs=(P(), P(), P("dp")), out_specs=(P(), P(), P()),
             check_vma=False)
    def train_step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        grads = lax.pmean(grads, "dp")
        updates, opt_state = tx.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        metrics = {"loss": lax.pmean(loss, "dp"), "grad_norm": optax.global_norm(grads)}
        return params, opt_state, metrics

    for i in range(steps):
        kx, ky = jax.random.split(jax.random.key(i))
        batch = jax.random.normal(kx, (16, 10)), jax.random.normal(ky, (16, 3))
        params, opt_state, metrics = train_step(params, opt_state, batch)
        print(i, metrics)
    return params, metrics


if __name__ == "__main__":
    main()
