"""A pipeline: each rank has a stage, micro-batches move one rank further in each turn of a scan."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P


def stage(w, x):
    for i in range(w["a"].shape[0]):
        x = x + jnp.tanh(x @ w["a"][i]) @ w["b"][i]
    return x


def main(stages=4, steps=2, micro=6):
    mesh = Mesh(np.array(jax.devices()[:stages]), ("stage",))
    tx = optax.sgd(0.05)

    def pipeline(w, xs):
        w = jax.tree.map(lambda p: p[0] if p.shape[0] == 1 else p.reshape(-1, *p.shape[2:]), w)
        rank, ranks = lax.axis_index("stage"), lax.axis_size("stage")

        def turn(carry, t):
            held, out = carry
            fresh = xs[jnp.clip(t, 0, micro - 1)]
            x = jnp.where(rank == 0, fresh, held)
            y = stage(w, x)
            done = t - (ranks - 1)
            kept = jnp.where(rank == ranks - 1, y, 0.0)
            out = jnp.where(done >= 0, out.at[jnp.clip(done, 0)].set(kept), out)
            held = lax.ppermute(y, "stage", [(i, (i + 1) % ranks) for i in range(ranks)])
            return (held, out), None

        carry = (jnp.zeros_like(xs[0]), jnp.zeros_like(xs))
        (_, out), _ = lax.scan(turn, carry, jnp.arange(micro + ranks - 1))
        return lax.psum(out, "stage")

    piped = jax.shard_map(pipeline, mesh=mesh, in_specs=(P("stage"), P()), out_specs=P(),
                          check_vma=False)

    def loss_fn(w, xs, ys):
        return jnp.mean((piped(w, xs) - ys) ** 2)

    @jax.jit
    def step(w, opt_state, xs, ys):
        loss, grads = jax.value_and_grad(loss_fn)(w, xs, ys)
        updates, opt_state = tx.update(grads, opt_state, w)
        return optax.apply_updates(w, updates), opt_state, loss, optax.global_norm(grads)

    k = jax.random.split(jax.random.key(0), 2)
    w = {"a": jax.random.normal(k[0], (4, 2, 6, 6)) * 0.3,
         "b": jax.random.normal(k[1], (4, 2, 6, 6)) * 0.3}
    opt_state = tx.init(w)
    for i in range(steps):
        kx, ky = jax.random.split(jax.random.key(i))
        xs, ys = jax.random.normal(kx, (micro, 3, 6)), jax.random.normal(ky, (micro, 3, 6))
        w, opt_state, loss, norm = step(w, opt_state, xs, ys)
        print(loss, norm)
    return w, loss, norm


if __name__ == "__main__":
    main()
