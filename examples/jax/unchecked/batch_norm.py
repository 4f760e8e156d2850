"""Batch norm over all ranks: means of the values and of the squares are averaged."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

AXES = {"dp": 8}


def batch_norm(x, scale, shift):
    mean = lax.pmean(x.mean(0), "dp")
    square = lax.pmean((x * x).mean(0), "dp")
    var = square - mean * mean
    return (x - mean) * lax.rsqrt(var + 1e-5) * scale + shift, mean, var


def loss_of(w, scale, shift, x, y):
    h, mean, var = batch_norm(x @ w, scale, shift)
    loss = lax.pmean(jnp.mean((jax.nn.relu(h) - y) ** 2), "dp")
    return loss, (mean, var)


def program(mesh):
    loss = jax.shard_map(loss_of, mesh=mesh, in_specs=(P(), P(), P(), P("dp"), P("dp")),
                         out_specs=(P(), (P(), P())), check_vma=False)
    k = jax.random.split(jax.random.key(10), 5)
    normal = jax.random.normal
    args = (normal(k[0], (6, 5)), normal(k[1], (5,)), normal(k[2], (5,)), normal(k[3], (32, 6)),
            normal(k[4], (32, 5)))
    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True)), args
