"""Denoising with noise from typed keys: a key for each example of the whole batch."""

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, PartitionSpec as P


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class TrainState:
    params: dict
    ema: dict
    key: jax.Array
    step: jax.Array


def denoise(params, x, t):
    h = jnp.concatenate([x, t[:, None]], axis=1)
    return jnp.tanh(h @ params["in"]) @ params["out"]


def main(dp=8, steps=2):
    mesh = jax.make_mesh((dp,), ("dp",), axis_types=(AxisType.Auto,))

    def train_step(state, x):
        key, now = jax.random.split(state.key)
        rows = lax.axis_index("dp") * x.shape[0] + jnp.arange(x.shape[0])
        keys = jax.vmap(lambda row: jax.random.fold_in(now, row))(rows)
        noise = jax.vmap(lambda k: jax.random.normal(k, x.shape[1:]))(keys)
        t = jax.vmap(lambda k: jax.random.uniform(jax.random.fold_in(k, 1)))(keys)

        def loss_fn(params):
            mixed = jnp.sqrt(1 - t)[:, None] * x + jnp.sqrt(t)[:, None] * noise
            return jnp.mean((denoise(params, mixed, t) - noise) ** 2)

        loss, grads = jax.value_and_grad(loss_fn)(state.params)
        grads = lax.pmean(grads, "dp")
        params = jax.tree.map(lambda p, g: p - 0.1 * g, state.params, grads)
        ema = jax.tree.map(lambda e, p: 0.9 * e + 0.1 * p, state.ema, params)
        return TrainState(params, ema, key, state.step + 1), lax.pmean(loss, "dp")

    step = jax.jit(jax.shard_map(train_step, mesh=mesh, in_specs=(P(), P("dp")),
                                 out_specs=(P(), P()), check_vma=False))
    k = jax.random.split(jax.random.key(0), 3)
    params = {"in": jax.random.normal(k[0], (5, 12)), "out": jax.random.normal(k[1], (12, 4))}
    state = TrainState(params, params, jax.random.key(42), jnp.int32(0))
    x = jax.random.normal(k[2], (16, 4))
    for _ in range(steps):
        state, loss = step(state, x)
        print(loss)
    return state.params, state.ema, loss


if __name__ == "__main__":
    main()
