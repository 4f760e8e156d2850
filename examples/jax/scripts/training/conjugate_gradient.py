"""Conjugate gradients, the matrix cut by rows: a while loop until the residual is small."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P


def main(ranks=8):
    mesh = Mesh(np.array(jax.devices()[:ranks]), ("rows",))

    def dot(a, b):
        return lax.psum(jnp.vdot(a, b), "rows")

    def solve(a, b):
        def product(p):
            return a @ lax.all_gather(p, "rows", tiled=True)

        def go_on(state):
            *_, rr, turn = state
            return (rr > 1e-6) & (turn < 50)

        def turn(state):
            x, r, p, rr, count = state
            ap = product(p)
            alpha = rr / dot(p, ap)
            x = x + alpha * p
            r = r - alpha * ap
            new = dot(r, r)
            p = r + (new / rr) * p
            return x, r, p, new, count + 1

        state = (jnp.zeros_like(b), b, b, dot(b, b), 0)
        x, _, _, rr, count = lax.while_loop(go_on, turn, state)
        return x, jnp.sqrt(rr), count

    solver = jax.jit(jax.shard_map(solve, mesh=mesh, in_specs=(P("rows", None), P("rows")),
                                   out_specs=(P("rows"), P(), P()), check_vma=False))
    m = jax.random.normal(jax.random.key(0), (16, 16))
    a = m @ m.T / 16 + jnp.eye(16)
    b = jax.random.normal(jax.random.key(1), (16,))
    a = jax.device_put(a, NamedSharding(mesh, P("rows")))
    b = jax.device_put(b, NamedSharding(mesh, P("rows")))
    x, residual, turns = solver(a, b)
    print(turns, residual)
    return x, turns


if __name__ == "__main__":
    main()
