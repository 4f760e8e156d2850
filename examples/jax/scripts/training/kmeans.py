"""k-means: points are cut over the ranks, centres are on all of them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P

K = 5


def main(ranks=8, turns=4):
    mesh = Mesh(np.array(jax.devices()[:ranks]), ("points",))

    @jax.jit
    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(P("points"), P()),
                       out_specs=(P(), P(), P("points")), check_vma=False)
    def fit(points, centres):
        def assign(centres):
            distance = jnp.sum((points[:, None] - centres[None]) ** 2, axis=-1)
            return jnp.argmin(distance, axis=1), jnp.min(distance, axis=1)

        def update(_, centres):
            label, _ = assign(centres)
            sums = jax.ops.segment_sum(points, label, num_segments=K)
            counts = jax.ops.segment_sum(jnp.ones(points.shape[0]), label, num_segments=K)
            sums = lax.psum(sums, "points")
            counts = lax.psum(counts, "points")
            return jnp.where(counts[:, None] > 0, sums / jnp.maximum(counts, 1)[:, None], centres)

        centres = lax.fori_loop(0, turns, update, centres)
        label, distance = assign(centres)
        inertia = lax.psum(distance.sum(), "points")
        return centres, inertia, label

    points = jax.random.normal(jax.random.key(0), (64, 3))
    centres, inertia, label = fit(points, points[::13])
    print(inertia)
    return centres, inertia, label


if __name__ == "__main__":
    main()
