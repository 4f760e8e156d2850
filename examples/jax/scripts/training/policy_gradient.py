"""PPO-like updates: advantages normalized over all ranks, epochs in a loop, stopped by the KL."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import AxisType, PartitionSpec as P


class Batch(NamedTuple):
    obs: jax.Array
    action: jax.Array
    logp: jax.Array
    advantage: jax.Array


def log_prob(params, obs, action):
    logits = jax.nn.relu(obs @ params["w1"] + params["b1"]) @ params["w2"]
    return jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], 1)[:, 0]


def ppo_loss(params, batch):
    logp = log_prob(params, batch.obs, batch.action)
    ratio = jnp.exp(logp - batch.logp)
    clipped = jnp.clip(ratio, 0.8, 1.2)
    loss = -jnp.mean(jnp.minimum(ratio * batch.advantage, clipped * batch.advantage))
    return loss, jnp.mean(batch.logp - logp)


def main(actors=8):
    mesh = jax.make_mesh((actors,), ("actors",), axis_types=(AxisType.Auto,))
    tx = optax.sgd(0.3)

    @jax.jit
    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(P(), P("actors")),
                       out_specs=(P(), P(), P()), check_vma=False)
    def update(params, batch):
        mean = lax.pmean(batch.advantage.mean(), "actors")
        var = lax.pmean(jnp.mean((batch.advantage - mean) ** 2), "actors")
        batch = batch._replace(advantage=(batch.advantage - mean) / jnp.sqrt(var + 1e-8))

        def epoch(carry):
            params, state, _, count = carry
            (loss, kl), grads = jax.value_and_grad(ppo_loss, has_aux=True)(params, batch)
            grads, kl = lax.pmean((grads, kl), "actors")
            updates, state = tx.update(grads, state, params)
            return optax.apply_updates(params, updates), state, kl, count + 1

        def go_on(carry):
            return (carry[3] < 6) & (carry[2] < 0.02)

        carry = (params, tx.init(params), jnp.float32(0), 0)
        params, _, kl, count = lax.while_loop(go_on, epoch, carry)
        return params, kl, count

    k = jax.random.split(jax.random.key(0), 6)
    params = {"w1": jax.random.normal(k[0], (5, 12)), "b1": jnp.zeros(12),
              "w2": jax.random.normal(k[1], (12, 3)) * 0.3}
    obs, action = jax.random.normal(k[2], (32, 5)), jax.random.randint(k[3], (32,), 0, 3)
    batch = Batch(obs, action, log_prob(params, obs, action), jax.random.normal(k[4], (32,)) + 2.0)
    params, kl, count = update(params, batch)
    print(kl, count)
    return params, kl, count


if __name__ == "__main__":
    main()
