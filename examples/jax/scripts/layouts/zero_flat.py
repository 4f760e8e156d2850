"""ZeRO-1 on one flat vector: gradients are scattered, pieces updated with optax and gathered."""

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import AxisType, PartitionSpec as P


def model(params, x):
    for w, b in params[:-1]:
        x = jax.nn.elu(x @ w + b)
    w, b = params[-1]
    return x @ w + b


def main(dp=8, steps=2):
    mesh = jax.make_mesh((dp,), ("dp",), axis_types=(AxisType.Auto,))
    sizes = (7, 16, 9, 3)
    keys = jax.random.split(jax.random.key(0), 3)
    params = [(jax.random.normal(k, (a, b)) / 3, jnp.zeros(b))
              for k, a, b in zip(keys, sizes, sizes[1:])]
    flat, unravel = ravel_pytree(params)
    padding = -flat.size % dp
    flat = jnp.pad(flat, (0, padding))
    count = flat.size - padding
    tx = optax.adamw(1e-2)
    opt_state = tx.init(flat)
    is_vector = lambda leaf: P("dp") if getattr(leaf, "ndim", 0) else P()
    state_specs = jax.tree.map(is_vector, opt_state)

    def loss_fn(piece_of, x, y):
        return jnp.mean((model(unravel(piece_of[:count]), x) - y) ** 2)

    def step(flat, opt_state, x, y):
        loss, grad = jax.value_and_grad(loss_fn)(flat, x, y)
        grad = lax.psum_scatter(grad, "dp", tiled=True) / lax.axis_size("dp")
        size = grad.shape[0]
        own = lax.dynamic_slice_in_dim(flat, lax.axis_index("dp") * size, size)
        updates, opt_state = tx.update(grad, opt_state, own)
        own = optax.apply_updates(own, updates)
        flat = lax.all_gather(own, "dp", tiled=True)
        norm = jnp.sqrt(lax.psum(jnp.sum(grad ** 2), "dp"))
        return flat, opt_state, lax.pmean(loss, "dp"), norm

    step = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=(P(), state_specs, P("dp"), P("dp")),
                                 out_specs=(P(), state_specs, P(), P()), check_vma=False))
    for i in range(steps):
        kx, ky = jax.random.split(jax.random.key(i))
        x, y = jax.random.normal(kx, (16, 7)), jax.random.normal(ky, (16, 3))
        flat, opt_state, loss, norm = step(flat, opt_state, x, y)
        print(loss, norm)
    return unravel(flat[:count]), loss, norm


if __name__ == "__main__":
    main()
