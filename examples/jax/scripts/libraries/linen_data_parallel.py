"""A linen classifier, data-parallel: the loss is a shard_map, gradients and optax are outside."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P


class Classifier(nn.Module):
    hidden: int = 24
    classes: int = 5

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(self.hidden)(x)
        x = nn.LayerNorm()(x)
        x = nn.gelu(x)
        return nn.Dense(self.classes)(x)


def main(data=8, steps=2):
    devices = np.array(jax.devices()[:data])
    mesh = Mesh(devices, ("data",))
    model = Classifier()
    params = model.init(jax.random.key(0), jnp.ones((1, 12)))
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1, momentum=0.9))
    state = optimizer.init(params)

    def loss_of(params, x, labels):
        logits = model.apply(params, x)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        hits = jnp.mean(jnp.argmax(logits, -1) == labels)
        return lax.pmean(losses.mean(), "data"), lax.pmean(hits, "data")

    sharded_loss = jax.shard_map(loss_of, mesh=mesh, in_specs=(P(), P("data"), P("data")),
                                 out_specs=(P(), P()), check_vma=False)

    def train_step(params, state, x, labels):
        grad_of = jax.value_and_grad(sharded_loss, has_aux=True)
        (loss, accuracy), grads = grad_of(params, x, labels)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss, accuracy

    step = jax.jit(train_step, donate_argnums=(0, 1))
    params, state = jax.device_put((params, state), NamedSharding(mesh, P()))
    for number in range(steps):
        key = jax.random.key(number + 1)
        x = jax.device_put(jax.random.normal(key, (32, 12)), NamedSharding(mesh, P("data")))
        labels = jax.random.randint(key, (32,), 0, 5)
        params, state, loss, accuracy = step(params, state, x, labels)
        print(number, loss, accuracy)
    return params, loss, accuracy


if __name__ == "__main__":
    main()
