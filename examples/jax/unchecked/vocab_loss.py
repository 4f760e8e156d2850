"""Vocabulary-parallel embedding and cross-entropy."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

AXES = {"dp": 2, "tp": 4}


def embed(table, tokens):
    rows = table.shape[0]
    local = tokens - lax.axis_index("tp") * rows
    valid = (local >= 0) & (local < rows)
    out = table[jnp.where(valid, local, 0)]
    out = jnp.where(valid[..., None], out, 0.0)
    return lax.psum(out, "tp")


def cross_entropy(logits, labels):
    columns = logits.shape[-1]
    top = lax.pmax(lax.stop_gradient(logits.max(-1)), "tp")
    logits = logits - top[..., None]
    total = lax.psum(jnp.exp(logits).sum(-1), "tp")
    local = labels - lax.axis_index("tp") * columns
    valid = (local >= 0) & (local < columns)
    picked = jnp.take_along_axis(logits, jnp.where(valid, local, 0)[..., None], -1)[..., 0]
    picked = lax.psum(jnp.where(valid, picked, 0.0), "tp")
    return jnp.log(total) - picked


def loss_of(table, head, tokens, labels):
    h = jnp.tanh(embed(table, tokens))
    losses = cross_entropy(h @ head, labels)
    return lax.pmean(losses.mean(), "dp")


def program(mesh):
    loss = jax.shard_map(loss_of, mesh=mesh, in_specs=(P("tp"), P(None, "tp"), P("dp"), P("dp")),
                         out_specs=P(), check_vma=False)
    k = jax.random.split(jax.random.key(4), 4)
    args = (jax.random.normal(k[0], (24, 6)), jax.random.normal(k[1], (6, 24)),
            jax.random.randint(k[2], (4, 5), 0, 24), jax.random.randint(k[3], (4, 5), 0, 24))
    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1))), args
