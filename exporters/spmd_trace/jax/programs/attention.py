"""Attention: heads over ranks, keys over ranks, blocks that go around a ring."""

import jax
import jax.numpy as jnp
from jax import lax

from .catalog import array, program

X = array(8, 16, 32, at=("dp",))
HEADS = array(32, 8, 4, at=(None, "tp"))
OUT = array(8, 4, 32, at=("tp",))


def _loss(y, axes=("dp",)):
    return lax.psum(jnp.sum(y * y), axes)


def _attend(q, k, v):
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 2.0
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)


@program(X, HEADS, HEADS, HEADS, OUT)
def attention_heads(x, wq, wk, wv, wo):
    """Some heads on each rank."""
    q, k, v = (jnp.einsum("bsm,mhd->bshd", x, w) for w in (wq, wk, wv))
    return _loss(lax.psum(jnp.einsum("bshd,hdm->bsm", _attend(q, k, v), wo), "tp"))


@program(X, HEADS, HEADS, HEADS, OUT)
def causal_attention(x, wq, wk, wv, wo):
    q, k, v = (jnp.einsum("bsm,mhd->bshd", x, w) for w in (wq, wk, wv))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 2.0
    positions = jnp.arange(x.shape[1])
    scores = jnp.where(positions[:, None] >= positions[None, :], scores, -1e9)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)
    return _loss(lax.psum(jnp.einsum("bshd,hdm->bsm", mixed, wo), "tp"))


SEQUENCE = array(8, 16, 4, 8, at=("dp", "tp"))


@program(SEQUENCE, SEQUENCE, SEQUENCE)
def ring_attention(q, k, v):
    """Keys and values go around; numerators and denominators are kept with their maximum."""
    turn = [(rank, (rank + 1) % 4) for rank in range(4)]

    def step(carry, _):
        k, v, top, weight, total = carry
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k)
        new = jnp.maximum(top, lax.stop_gradient(jnp.max(scores, axis=-1)))
        decay = jnp.exp(top - new)
        chances = jnp.exp(scores - new[..., None])
        weight = weight * decay + jnp.sum(chances, axis=-1)
        total = total * decay[..., None] + jnp.einsum("bhqk,bkhd->bhqd", chances, v)
        k, v = lax.ppermute((k, v), "tp", turn)
        return (k, v, new, weight, total), None

    shape = (q.shape[0], q.shape[2], q.shape[1])
    start = lax.pcast(jnp.full(shape, -1e9), ("dp", "tp"), to="varying")
    zero = lax.pcast(jnp.zeros(shape), ("dp", "tp"), to="varying")
    none = lax.pcast(jnp.zeros((*shape, q.shape[3])), ("dp", "tp"), to="varying")
    (_, _, _, weight, total), _ = lax.scan(step, (k, v, start, zero, none), None, length=4)
    return _loss(total / weight[..., None], ("dp", "tp"))


@program(SEQUENCE, SEQUENCE, SEQUENCE)
def gathered_attention(q, k, v):
    """Context parallelism: all keys and values on each rank."""
    k, v = (lax.all_gather(one, "tp", axis=1, tiled=True) for one in (k, v))
    return _loss(_attend(q, k, v), ("dp", "tp"))


@program(SEQUENCE, SEQUENCE, SEQUENCE)
def ulysses_attention(q, k, v):
    """From parts of the sequence to heads and back."""

    def to_heads(one):
        return lax.all_to_all(one, "tp", split_axis=2, concat_axis=1, tiled=True)

    mixed = _attend(to_heads(q), to_heads(k), to_heads(v))
    back = lax.all_to_all(mixed, "tp", split_axis=1, concat_axis=2, tiled=True)
    return _loss(back, ("dp", "tp"))
