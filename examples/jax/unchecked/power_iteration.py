"""Eigenvectors of a covariance by subspace iteration: rows over dp, features over fp."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

AXES = {"dp": 2, "fp": 4}


def iterate(q, x):
    mean = lax.pmean(x.mean(0), "dp")
    x = x - mean

    def turn(q, _):
        scores = lax.psum(x @ q, "fp")
        z = lax.pmean(x.T @ scores / x.shape[0], "dp")
        gram = lax.psum(z.T @ z, "fp")
        chol = jnp.linalg.cholesky(gram + 1e-6 * jnp.eye(gram.shape[0]))
        q = jax.scipy.linalg.solve_triangular(chol, z.T, lower=True).T
        return q, jnp.diagonal(chol)

    q, values = lax.scan(turn, q, None, length=4)
    return q, values[-1]


def program(mesh):
    mapped = jax.shard_map(iterate, mesh=mesh, in_specs=(P("fp"), P("dp", "fp")),
                           out_specs=(P("fp"), P()), check_vma=False)
    k = jax.random.split(jax.random.key(8), 2)
    return jax.jit(mapped), (jax.random.normal(k[0], (16, 3)), jax.random.normal(k[1], (12, 16)))
