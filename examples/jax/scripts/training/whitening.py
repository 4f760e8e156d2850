"""Embeddings of two views are whitened by the covariance of the whole batch."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, PartitionSpec as P


def main(data=8, steps=2):
    mesh = jax.make_mesh((data,), ("data",), axis_types=(AxisType.Auto,))

    def embed(w, x):
        z = jnp.tanh(x @ w)
        mean = lax.pmean(z.mean(axis=0), "data")
        centred = z - mean
        cov = lax.pmean(centred.T @ centred / z.shape[0], "data")
        chol = jnp.linalg.cholesky(cov + 1e-2 * jnp.eye(cov.shape[0]))
        return jax.scipy.linalg.solve_triangular(chol, centred.T, lower=True).T

    def body(w, a, b):
        apart = jnp.sum((embed(w, a) - embed(w, b)) ** 2, axis=-1)
        return lax.pmean(jnp.mean(apart), "data")

    loss = jax.shard_map(body, mesh=mesh, in_specs=(P(), P("data"), P("data")), out_specs=P(),
                         check_vma=False)

    @jax.jit
    def train(w, a, b):
        value, g = jax.value_and_grad(loss)(w, a, b)
        return w - 0.1 * g, value

    k = jax.random.split(jax.random.key(4), 3)
    w = jax.random.normal(k[1], (5, 4)) * 0.4
    a = jax.random.normal(k[0], (64, 5)) + 0.3
    b = a + 0.3 * jax.random.normal(k[2], a.shape)
    for _ in range(steps):
        w, value = train(w, a, b)
        print(value)
    return w, value


if __name__ == "__main__":
    main()
