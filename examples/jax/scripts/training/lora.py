"""Low-rank adapters on frozen weights cut over the model ranks; only the adapters are trained."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P

BASE = {"up": P(None, "model"), "down": P("model", None)}
ADAPTERS = {"up": {"a": P(), "b": P(None, "model")}, "down": {"a": P("model"), "b": P()}}


def forward(base, lora, x):
    h = x @ base["up"] + (x @ lora["up"]["a"]) @ lora["up"]["b"]
    h = jax.nn.gelu(h)
    out = h @ base["down"]
    low = lax.psum(h @ lora["down"]["a"], "model")
    return lax.psum(out, "model") + low @ lora["down"]["b"]


def main(data=2, model=4, steps=2):
    mesh = Mesh(np.array(jax.devices()[: data * model]).reshape(data, model), ("data", "model"))
    tx = optax.sgd(0.1)

    def loss_fn(lora, base, x, y):
        error = jnp.mean((forward(base, lora, x) - y) ** 2)
        return lax.pmean(error, "data")

    loss_fn = jax.shard_map(loss_fn, mesh=mesh, in_specs=(ADAPTERS, BASE, P("data"), P("data")),
                            out_specs=P(), check_vma=False)

    @jax.jit
    def step(lora, opt_state, base, x, y):
        loss, grads = jax.value_and_grad(loss_fn)(lora, base, x, y)
        updates, opt_state = tx.update(grads, opt_state, lora)
        return optax.apply_updates(lora, updates), opt_state, loss

    k = jax.random.split(jax.random.key(0), 6)
    n = lambda i, *s: jax.random.normal(k[i], s) * 0.4
    base = {"up": n(0, 6, 16), "down": n(1, 16, 6)}
    lora = {"up": {"a": n(2, 6, 2), "b": n(3, 2, 16)}, "down": {"a": n(4, 16, 2), "b": n(5, 2, 6)}}
    opt_state = tx.init(lora)
    for i in range(steps):
        x, y = jax.random.normal(jax.random.key(i), (2, 10, 6))
        lora, opt_state, loss = step(lora, opt_state, base, x, y)
        print(loss)
    return lora, loss


if __name__ == "__main__":
    main()
