"""Sequence-parallel attention: all_to_all from tokens to heads, attention to all tokens, back."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import AxisType, PartitionSpec as P


class Attention(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x):
        width = x.shape[-1]
        qkv = nn.DenseGeneral((3, self.heads, width // self.heads), use_bias=False)(x)
        q, k, v = jnp.moveaxis(qkv, -3, 0)
        to_heads = lambda t: lax.all_to_all(t, "sp", split_axis=2, concat_axis=1, tiled=True)
        q, k, v = to_heads(q), to_heads(k), to_heads(v)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        causal = jnp.tril(jnp.ones((q.shape[1], q.shape[1]), bool))
        out = jnp.einsum("bhqk,bkhd->bqhd", nn.softmax(jnp.where(causal, scores, -1e9)), v)
        out = lax.all_to_all(out, "sp", split_axis=1, concat_axis=2, tiled=True)
        return nn.DenseGeneral(width, axis=(-2, -1))(out)


class Layer(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x):
        x = x + Attention(self.heads)(nn.LayerNorm()(x))
        h = nn.Dense(2 * x.shape[-1])(nn.LayerNorm()(x))
        return x + nn.Dense(x.shape[-1])(nn.gelu(h))


def main(dp=2, sp=4, steps=2):
    mesh = jax.make_mesh((dp, sp), ("dp", "sp"), axis_types=(AxisType.Auto,) * 2)
    layer = Layer(heads=4)
    shape = jax.ShapeDtypeStruct((1, 4, 8), jnp.float32)
    init = jax.shard_map(lambda x: layer.init(jax.random.key(0), x), mesh=mesh, in_specs=P(),
                         out_specs=P(), check_vma=False)
    params = jax.jit(init)(jnp.zeros(shape.shape))
    tx = optax.sgd(0.1, momentum=0.9)
    opt_state = tx.init(params)
    rows = P("dp", "sp")

    def loss_fn(params, x, y):
        out = layer.apply(params, x)
        return lax.pmean(jnp.mean((out - y) ** 2), ("dp", "sp"))

    loss_fn = jax.shard_map(loss_fn, mesh=mesh, in_specs=(P(), rows, rows), out_specs=P(),
                            check_vma=False)

    @jax.jit
    def step(params, opt_state, x, y):
        loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    for i in range(steps):
        x, y = jax.random.normal(jax.random.key(i + 1), (2, 4, 16, 8))
        params, opt_state, loss = step(params, opt_state, x, y)
        print(loss)
    return params, loss


if __name__ == "__main__":
    main()
