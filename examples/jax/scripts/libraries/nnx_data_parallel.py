"""flax.nnx: the state of the model is split off, and the step is a shard_map over it."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax import lax
from jax.sharding import AxisType, PartitionSpec as P


class MLP(nnx.Module):
    def __init__(self, din, hidden, dout, rngs):
        self.up = nnx.Linear(din, hidden, rngs=rngs)
        self.norm = nnx.LayerNorm(hidden, rngs=rngs)
        self.down = nnx.Linear(hidden, dout, rngs=rngs)

    def __call__(self, x):
        return self.down(nnx.gelu(self.norm(self.up(x))))


def main(dp=8, steps=2):
    mesh = jax.make_mesh((dp,), ("dp",), axis_types=(AxisType.Auto,))
    model = MLP(6, 20, 2, nnx.Rngs(0))
    graph, state = nnx.split(model)
    tx = optax.sgd(0.05, momentum=0.9)
    opt_state = tx.init(state)

    def loss_of(state, x, y, weight):
        out = nnx.merge(graph, state)(x)
        per_row = jnp.sum((out - y) ** 2, axis=-1)
        return jnp.sum(per_row * weight), jnp.sum(weight)

    def step(state, opt_state, x, y, weight):
        def total(state):
            loss, count = loss_of(state, x, y, weight)
            return loss / lax.psum(count, "dp")

        loss, grads = jax.value_and_grad(total)(state)
        loss, grads = lax.psum((loss, grads), "dp")
        updates, opt_state = tx.update(grads, opt_state, state)
        return optax.apply_updates(state, updates), opt_state, loss

    step = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=(P(), P(), P("dp"), P("dp"), P("dp")),
                                 out_specs=(P(), P(), P()), check_vma=False))
    for i in range(steps):
        k = jax.random.split(jax.random.key(i), 3)
        x, y = jax.random.normal(k[0], (24, 6)), jax.random.normal(k[1], (24, 2))
        weight = jax.random.uniform(k[2], (24,))
        state, opt_state, loss = step(state, opt_state, x, y, weight)
        print(i, loss)
    nnx.update(model, state)
    return nnx.state(model), loss


if __name__ == "__main__":
    main()
