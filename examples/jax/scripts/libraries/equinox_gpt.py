"""equinox: a small transformer, its gradients by filter_value_and_grad in a shard_map."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import AxisType, PartitionSpec as P


class Block(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    mlp: eqx.nn.MLP
    norm1: eqx.nn.LayerNorm
    norm2: eqx.nn.LayerNorm

    def __init__(self, width, heads, key):
        k1, k2 = jax.random.split(key)
        self.attention = eqx.nn.MultiheadAttention(heads, width, key=k1)
        self.mlp = eqx.nn.MLP(width, width, 2 * width, depth=1, key=k2)
        self.norm1, self.norm2 = eqx.nn.LayerNorm(width), eqx.nn.LayerNorm(width)

    def __call__(self, x):
        h = jax.vmap(self.norm1)(x)
        mask = jnp.tril(jnp.ones((x.shape[0], x.shape[0]), bool))
        x = x + self.attention(h, h, h, mask=mask)
        return x + jax.vmap(self.mlp)(jax.vmap(self.norm2)(x))


class GPT(eqx.Module):
    embedding: eqx.nn.Embedding
    blocks: list
    head: eqx.nn.Linear

    def __init__(self, vocab, width, heads, depth, key):
        keys = jax.random.split(key, depth + 2)
        self.embedding = eqx.nn.Embedding(vocab, width, key=keys[0])
        self.blocks = [Block(width, heads, k) for k in keys[2:]]
        self.head = eqx.nn.Linear(width, vocab, key=keys[1])

    def __call__(self, tokens):
        x = jax.vmap(self.embedding)(tokens)
        for block in self.blocks:
            x = block(x)
        return jax.vmap(self.head)(x)


def loss_fn(model, tokens):
    logits = jax.vmap(model)(tokens[:, :-1])
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
    return losses.mean()


def main(batch=8, steps=2):
    mesh = jax.make_mesh((batch,), ("batch",), axis_types=(AxisType.Auto,))
    model = GPT(vocab=17, width=8, heads=2, depth=2, key=jax.random.key(0))
    optimizer = optax.adamw(3e-3)
    state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
    arrays, static = eqx.partition(model, eqx.is_inexact_array)

    @eqx.filter_jit
    def train_step(arrays, state, tokens):
        def on_rank(arrays, tokens):
            loss, grads = jax.value_and_grad(
                lambda a: loss_fn(eqx.combine(a, static), tokens))(arrays)
            grads = lax.pmean(grads, "batch")
            loss = lax.pmean(loss, "batch")
            return loss, grads

        loss, grads = jax.shard_map(on_rank, mesh=mesh, in_specs=(P(), P("batch")),
                                    out_specs=(P(), P()), check_vma=False)(arrays, tokens)
        updates, state = optimizer.update(grads, state, arrays)
        return eqx.apply_updates(arrays, updates), state, loss, optax.global_norm(grads)

    for i in range(steps):
        tokens = jax.random.randint(jax.random.key(i), (16, 10), 0, 17)
        arrays, state, loss, norm = train_step(arrays, state, tokens)
        print(i, loss, norm)
    return arrays, loss, norm


if __name__ == "__main__":
    main()
