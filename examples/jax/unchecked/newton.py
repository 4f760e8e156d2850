"""Logistic regression by Newton's method: gradient and Hessian are summed, each rank solves."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

AXES = {"dp": 4}


def fit(w, x, y, importance):
    total = lax.psum(jnp.sum(importance), "dp")

    def step(w, _):
        p = jax.nn.sigmoid(x @ w)
        grad = lax.psum(x.T @ (importance * (p - y)), "dp") / total + 0.1 * w
        curvature = importance * p * (1 - p)
        hessian = lax.psum(x.T @ (curvature[:, None] * x), "dp") / total
        hessian = hessian + 0.1 * jnp.eye(w.shape[0])
        return w - jnp.linalg.solve(hessian, grad), lax.psum(jnp.sum((p > 0.5) == y), "dp")

    return lax.scan(step, w, None, length=3)


def program(mesh):
    mapped = jax.shard_map(fit, mesh=mesh, in_specs=(P(), P("dp"), P("dp"), P("dp")),
                           out_specs=(P(), P()), check_vma=False)
    k = jax.random.split(jax.random.key(3), 4)
    return jax.jit(mapped), (jax.random.normal(k[0], (5,)), jax.random.normal(k[1], (24, 5)),
                             (jax.random.uniform(k[2], (24,)) > 0.5).astype(float),
                             jax.random.uniform(k[3], (24,)))
