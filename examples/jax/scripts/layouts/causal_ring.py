"""Causal attention over a ring: keys and values go round, masks count from the rank's position."""

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import AxisType, PartitionSpec as P


def attention(q, k, v):
    rank, ranks, length = lax.axis_index("sp"), lax.axis_size("sp"), q.shape[1]
    rows = rank * length + jnp.arange(length)
    to_next = [(i, (i + 1) % ranks) for i in range(ranks)]

    def turn(carry, t):
        k, v, total, out = carry
        columns = (rank - t) % ranks * length + jnp.arange(length)
        scores = jnp.einsum("bqd,bkd->bqk", q, k) / q.shape[-1] ** 0.5
        weights = jnp.where(rows[:, None] >= columns[None, :], jnp.exp(scores), 0.0)
        total = total + weights.sum(-1)
        out = out + jnp.einsum("bqk,bkd->bqd", weights, v)
        k, v = lax.ppermute((k, v), "sp", to_next)
        return (k, v, total, out), None

    start = (k, v, jnp.zeros_like(q[..., 0]), jnp.zeros_like(q))
    (_, _, total, out), _ = lax.scan(turn, start, jnp.arange(ranks))
    return out / total[..., None]


def predict(params, tokens):
    x = params["table"][tokens]
    q, k, v = jnp.split(x @ params["qkv"], 3, axis=-1)
    x = x + attention(q, k, v) @ params["out"]
    return x @ params["table"].T


def main(dp=2, sp=4, steps=2):
    mesh = jax.make_mesh((dp, sp), ("dp", "sp"), axis_types=(AxisType.Auto,) * 2)
    keys = jax.random.split(jax.random.key(0), 3)
    params = {
        "table": jax.random.normal(keys[0], (16, 8)),
        "qkv": 0.3 * jax.random.normal(keys[1], (8, 24)),
        "out": 0.3 * jax.random.normal(keys[2], (8, 8)),
    }
    tx = optax.adam(1e-2)
    opt_state = tx.init(params)
    rows = P("dp", "sp")

    def loss_fn(params, tokens, following):
        losses = optax.softmax_cross_entropy_with_integer_labels(predict(params, tokens), following)
        return lax.pmean(losses.mean(), ("dp", "sp"))

    loss_fn = jax.shard_map(loss_fn, mesh=mesh, in_specs=(P(), rows, rows), out_specs=P())

    @jax.jit
    def step(params, opt_state, text):
        loss, grads = jax.value_and_grad(loss_fn)(params, text[:, :-1], text[:, 1:])
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    for i in range(steps):
        text = jax.random.randint(jax.random.key(i + 1), (4, 17), 0, 16)
        params, opt_state, loss = step(params, opt_state, text)
        print(loss)
    return params, loss


if __name__ == "__main__":
    main()
