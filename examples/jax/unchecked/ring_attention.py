"""Ring attention: keys and values go around, the softmax is kept as running maximum and sum."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

AXES = {"sp": 8}


def ring_attention(q, k, v):
    ranks = lax.axis_size("sp")
    ring = [(i, (i + 1) % ranks) for i in range(ranks)]

    def turn(carry, _):
        k, v, top, total, out = carry
        scores = jnp.einsum("bqd,bkd->bqk", q, k)
        new_top = jnp.maximum(top, scores.max(-1))
        weight = jnp.exp(scores - new_top[..., None])
        old = jnp.exp(top - new_top)
        total = total * old + weight.sum(-1)
        out = out * old[..., None] + jnp.einsum("bqk,bkd->bqd", weight, v)
        k = lax.ppermute(k, "sp", ring)
        v = lax.ppermute(v, "sp", ring)
        return (k, v, new_top, total, out), None

    start = (k, v, jnp.full(q.shape[:2], -jnp.inf), jnp.zeros(q.shape[:2]), jnp.zeros(q.shape))
    (_, _, _, total, out), _ = lax.scan(turn, start, None, length=ranks)
    return out / total[..., None]


def program(mesh):
    spec = P(None, "sp")
    attention = jax.shard_map(ring_attention, mesh=mesh, in_specs=(spec, spec, spec),
                              out_specs=spec, check_vma=False)
    k = jax.random.split(jax.random.key(8), 3)
    return jax.jit(attention), tuple(jax.random.normal(key, (2, 16, 4)) for key in k)
