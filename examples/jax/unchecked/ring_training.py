"""A training step with ring attention: keys and values go round in a loop, their gradients back."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

AXES = {"sp": 4}


def attention(q, k, v):
    ranks = lax.axis_size("sp")
    ring = [(i, (i + 1) % ranks) for i in range(ranks)]

    def turn(_, carry):
        k, v, top, total, out = carry
        scores = jnp.einsum("bqd,bkd->bqk", q, k) / jnp.sqrt(q.shape[-1])
        new_top = jnp.maximum(top, scores.max(-1))
        weight = jnp.exp(scores - new_top[..., None])
        old = jnp.exp(top - new_top)
        total = total * old + weight.sum(-1)
        out = out * old[..., None] + jnp.einsum("bqk,bkd->bqd", weight, v)
        k, v = lax.ppermute((k, v), "sp", ring)
        return k, v, new_top, total, out

    start = (k, v, jnp.full(q.shape[:2], -1e30), jnp.zeros(q.shape[:2]), jnp.zeros(q.shape))
    _, _, _, total, out = lax.fori_loop(0, ranks, turn, start)
    return out / total[..., None]


def loss_of(w, x, y):
    out = attention(x @ w["q"], x @ w["k"], x @ w["v"])
    return jnp.mean((x + out @ w["o"] - y) ** 2)


def step(w, x, y):
    loss, grads = jax.value_and_grad(loss_of)(w, x, y)
    grads, loss = lax.pmean((grads, loss), "sp")
    return jax.tree.map(lambda p, g: p - 0.1 * g, w, grads), loss


def program(mesh):
    rows = P(None, "sp")
    train = jax.shard_map(step, mesh=mesh, in_specs=(P(), rows, rows), out_specs=P(),
                          check_vma=False)
    k = jax.random.split(jax.random.key(9), 6)
    w = {name: jax.random.normal(key, (8, 8)) / 3 for name, key in zip("qkvo", k)}
    return jax.jit(train), (w, *(jax.random.normal(key, (2, 16, 8)) for key in k[4:]))
