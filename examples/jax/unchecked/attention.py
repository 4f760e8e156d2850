"""Attention with heads over tp, the batch over dp; the sum after the output projection."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

AXES = {"dp": 2, "tp": 4}
HEAD = 4


def attention(x, wq, wk, wv, wo, bo):
    b, s, d = x.shape

    def heads(w):
        return (x @ w).reshape(b, s, -1, HEAD).transpose(0, 2, 1, 3)

    q, k, v = heads(wq), heads(wk), heads(wv)
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / jnp.sqrt(HEAD)
    mask = jnp.tril(jnp.ones((s, s), bool))
    scores = jnp.where(mask, scores, -1e9)
    probs = jax.nn.softmax(scores, axis=-1)
    out = jnp.einsum("bhqk,bhkd->bhqd", probs, v).transpose(0, 2, 1, 3).reshape(b, s, -1)
    out = lax.psum(out @ wo, "tp")
    return out + bo


def forward(x, wq, wk, wv, wo, bo):
    out = attention(x, wq, wk, wv, wo, bo)
    return x + out


def program(mesh):
    column, row = P(None, "tp"), P("tp", None)
    block = jax.shard_map(forward, mesh=mesh, in_specs=(P("dp"), column, column, column, row, P()),
                          out_specs=P("dp"), check_vma=False)
    k = jax.random.split(jax.random.key(3), 6)
    normal = jax.random.normal
    args = (normal(k[0], (4, 5, 12)), normal(k[1], (12, 32)), normal(k[2], (12, 32)),
            normal(k[3], (12, 32)), normal(k[4], (32, 12)), normal(k[5], (12,)))
    return jax.jit(block), args
