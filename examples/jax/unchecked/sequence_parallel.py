"""Sequence parallelism: norms on the tokens of a rank, products on all tokens."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

AXES = {"dp": 2, "tp": 4}


def norm(x, scale):
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


def block(x, scale, w1, w2, bias):
    h = norm(x, scale)
    h = lax.all_gather(h, "tp", axis=1, tiled=True)
    h = jax.nn.gelu(h @ w1)
    h = h @ w2
    h = lax.psum_scatter(h, "tp", scatter_dimension=1, tiled=True)
    return x + h + bias


def loss_of(params, x, y):
    out = block(x, *params)
    return jnp.sum((out - y) ** 2)


def train(params, x, y):
    loss, (scale, w1, w2, bias) = jax.value_and_grad(loss_of)(params, x, y)
    scale = lax.psum(scale, ("dp", "tp"))
    w1 = lax.psum(w1, "dp")
    w2 = lax.psum(w2, "dp")
    bias = lax.psum(bias, ("dp", "tp"))
    grads = (scale, w1, w2, bias)
    params = tuple(p - 0.01 * g for p, g in zip(params, grads))
    return params, lax.psum(loss, ("dp", "tp"))


def program(mesh):
    specs = (P(), P(None, "tp"), P("tp", None), P())
    data = P("dp", "tp")
    step = jax.shard_map(train, mesh=mesh, in_specs=(specs, data, data), out_specs=(specs, P()),
                         check_vma=False)
    k = jax.random.split(jax.random.key(7), 6)
    normal = jax.random.normal
    params = (normal(k[0], (8,)), normal(k[1], (8, 16)), normal(k[2], (16, 8)), normal(k[3], (8,)))
    return jax.jit(step), (params, normal(k[4], (4, 8, 8)), normal(k[5], (4, 8, 8)))
