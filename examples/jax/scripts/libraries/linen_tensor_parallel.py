"""Linen modules whose weights are cut over the model ranks: column, then row, and one sum."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P


class Column(nn.Module):
    features: int

    @nn.compact
    def __call__(self, x):
        w = self.param("w", nn.initializers.lecun_normal(), (x.shape[-1], self.features))
        b = self.param("b", nn.initializers.normal(0.1), (self.features,))
        return x @ w + b


class Row(nn.Module):
    features: int
    axis: str | None = None

    @nn.compact
    def __call__(self, x):
        w = self.param("w", nn.initializers.lecun_normal(), (x.shape[-1], self.features))
        b = self.param("b", nn.initializers.normal(0.1), (self.features,))
        y = x @ w
        if self.axis:
            y = lax.psum(y, self.axis)
        return y + b


class Block(nn.Module):
    width: int
    hidden: int
    axis: str | None = None

    @nn.compact
    def __call__(self, x):
        h = nn.RMSNorm()(x)
        h = nn.relu(Column(self.hidden)(h))
        return x + Row(self.width, self.axis)(h)


class Net(nn.Module):
    width: int
    hidden: int
    axis: str | None = None

    @nn.compact
    def __call__(self, x):
        for _ in range(2):
            x = Block(self.width, self.hidden, self.axis)(x)
        return x


def spec_of(path, leaf):
    names = [p.key for p in path]
    module = names[-2]
    if module.startswith("Column"):
        return P(None, "model") if names[-1] == "w" else P("model")
    if module.startswith("Row") and names[-1] == "w":
        return P("model", None)
    return P()


def main(data=2, model=4, steps=2):
    mesh = jax.make_mesh((data, model), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    whole = Net(width=8, hidden=16)
    local = Net(width=8, hidden=16 // model, axis="model")
    params = whole.init(jax.random.key(0), jnp.ones((1, 8)))
    specs = jax.tree_util.tree_map_with_path(spec_of, params)
    tx = optax.adam(1e-2)

    def loss_fn(params, x, y):
        out = local.apply(params, x)
        loss = jnp.mean((out - y) ** 2)
        return lax.pmean(loss, "data")

    sharded = jax.shard_map(loss_fn, mesh=mesh, in_specs=(specs, P("data"), P("data")),
                            out_specs=P(), check_vma=False)

    @jax.jit
    def step(params, opt_state, x, y):
        loss, grads = jax.value_and_grad(sharded)(params, x, y)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss, optax.global_norm(grads)

    params = jax.tree.map(lambda p, s: jax.device_put(p, NamedSharding(mesh, s)), params, specs)
    opt_state = tx.init(params)
    for i in range(steps):
        kx, ky = jax.random.split(jax.random.key(i + 1))
        x, y = jax.random.normal(kx, (12, 8)), jax.random.normal(ky, (12, 8))
        params, opt_state, loss, norm = step(params, opt_state, x, y)
        print(f"step {i} loss {loss:.4f} norm {norm:.4f}")
    return params, loss, norm


if __name__ == "__main__":
    main()
