"""A matrix product on a grid of ranks: rows over x, columns over y, the common one gathered."""

import jax
from jax import lax
from jax.sharding import PartitionSpec as P

AXES = {"x": 2, "y": 4}


def product(a, b):
    a = lax.all_gather(a, "y", axis=1, tiled=True)
    b = lax.all_gather(b, "x", axis=0, tiled=True)
    return a @ b


def scaled(a, b):
    c = product(a, b)
    rows = lax.psum(c.sum(1), "y")
    total = lax.psum(rows.sum(), "x")
    return c / total, rows


def program(mesh):
    f = jax.shard_map(scaled, mesh=mesh, in_specs=(P("x", "y"), P("x", "y")),
                      out_specs=(P("x", "y"), P("x")), check_vma=False)
    k = jax.random.split(jax.random.key(16), 2)
    return jax.jit(f), (jax.random.uniform(k[0], (8, 8)), jax.random.uniform(k[1], (8, 8)))
