"""Megatron's f and g as hand-written backwards; gradients inside of the shard_map."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

AXES = {"dp": 2, "tp": 4}


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def copy_to(x, axis):
    return x


copy_to.defvjp(lambda x, axis: (x, None),
               lambda axis, _, g: (lax.psum(g, axis),))


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def reduce_from(x, axis):
    return lax.psum(x, axis)


reduce_from.defvjp(lambda x, axis: (lax.psum(x, axis), None),
                   lambda axis, _, g: (g,))


def norm(x, scale):
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


def loss_of(params, x, y):
    h = norm(x, params["scale"])
    h = copy_to(h, "tp")
    h = jax.nn.silu(h @ params["gate"]) * (h @ params["up"])
    out = reduce_from(h @ params["down"], "tp")
    x = x + out
    return jnp.mean((x @ params["head"] - y) ** 2)


def train(params, x, y):
    loss, grads = jax.value_and_grad(loss_of)(params, x, y)
    grads = jax.tree.map(lambda g: lax.pmean(g, "dp"), grads)
    params = jax.tree.map(lambda p, g: p - 0.01 * g, params, grads)
    return params, lax.pmean(loss, "dp")


def program(mesh):
    specs = {"scale": P(), "gate": P(None, "tp"), "up": P(None, "tp"), "down": P("tp", None),
             "head": P()}
    step = jax.shard_map(train, mesh=mesh, in_specs=(specs, P("dp"), P("dp")),
                         out_specs=(specs, P()), check_vma=False)
    k = jax.random.split(jax.random.key(2), 7)
    shapes = {"scale": (6,), "gate": (6, 16), "up": (6, 16), "down": (16, 6), "head": (6, 3)}
    params = {n: jax.random.normal(k[i], s) for i, (n, s) in enumerate(shapes.items())}
    return jax.jit(step), (params, jax.random.normal(k[5], (10, 6)),
                           jax.random.normal(k[6], (10, 3)))
