"""A convolutional net of linen with batch norm over all data ranks, and flax's TrainState."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training import train_state
from jax import lax
from jax.sharding import AxisType, PartitionSpec as P


class TrainState(train_state.TrainState):
    batch_stats: Any


class Net(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        for features in (4, 8):
            x = nn.Conv(features, (3, 3), use_bias=False)(x)
            x = nn.BatchNorm(use_running_average=not train, axis_name="batch", momentum=0.9)(x)
            x = nn.relu(x)
            x = nn.avg_pool(x, (2, 2), (2, 2))
        return nn.Dense(3)(x.mean(axis=(1, 2)))


def main(batch=8, steps=2):
    mesh = jax.make_mesh((batch,), ("batch",), axis_types=(AxisType.Auto,))
    net = Net()
    variables = net.init(jax.random.key(0), jnp.ones((1, 8, 8, 3)), train=False)
    state = TrainState.create(apply_fn=net.apply, params=variables["params"],
                              batch_stats=variables["batch_stats"],
                              tx=optax.sgd(0.1, momentum=0.9, nesterov=True))

    def train_step(state, images, labels):
        def loss_fn(params):
            logits, updates = state.apply_fn({"params": params, "batch_stats": state.batch_stats},
                                             images, train=True, mutable=["batch_stats"])
            one_hot = jax.nn.one_hot(labels, 3)
            loss = optax.softmax_cross_entropy(logits, one_hot).mean()
            decay = sum(jnp.sum(p ** 2) for p in jax.tree.leaves(params) if p.ndim > 1)
            return loss + 1e-3 * decay, (updates, logits)

        (loss, (updates, logits)), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
        grads = lax.pmean(grads, axis_name="batch")
        state = state.apply_gradients(grads=grads, batch_stats=updates["batch_stats"])
        accuracy = jnp.mean(jnp.argmax(logits, -1) == labels)
        metrics = lax.pmean({"loss": loss, "accuracy": accuracy}, axis_name="batch")
        return state, metrics

    p_train_step = jax.jit(
        jax.shard_map(train_step, mesh=mesh, in_specs=(P(), P("batch"), P("batch")),
                      out_specs=(P(), P()), check_vma=False), donate_argnums=(0,))
    for i in range(steps):
        key = jax.random.key(i)
        images = jax.random.normal(key, (16, 8, 8, 3))
        labels = jax.random.randint(key, (16,), 0, 3)
        state, metrics = p_train_step(state, images, labels)
        print(metrics)
    return state.params, state.batch_stats, metrics


if __name__ == "__main__":
    main()
