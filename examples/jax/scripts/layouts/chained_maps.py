"""Three shard_maps with other specs: embedding by rows, mixing by sequence, loss by rows."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P


def main(x=2, y=4, steps=2):
    mesh = Mesh(np.array(jax.devices()[: x * y]).reshape(x, y), ("x", "y"))

    def embed(table, ids):
        out = table[ids]
        return lax.all_gather(out, "y", axis=2, tiled=True)

    def mix(h, w):
        mean = lax.pmean(h.mean(axis=1, keepdims=True), "y")
        return jnp.tanh((h - mean) @ w)

    def loss(h, head, labels):
        logits = h @ head
        nll = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        return lax.pmean(nll.mean(), ("x", "y"))

    embed = jax.shard_map(embed, mesh=mesh, in_specs=(P(None, "y"), P("x")),
                          out_specs=P("x"), check_vma=False)
    mix = jax.shard_map(mix, mesh=mesh, in_specs=(P("x", "y"), P()), out_specs=P("x", "y"),
                        check_vma=False)
    loss = jax.shard_map(loss, mesh=mesh, in_specs=(P(("x", "y")), P(), P(("x", "y"))),
                         out_specs=P(), check_vma=False)

    def model(params, ids, labels):
        h = embed(params["table"], ids)
        h = h + params["position"]
        h = mix(h, params["w"])
        h = 2.0 * jax.nn.relu(h)
        return loss(h, params["head"], labels)

    @jax.jit
    def step(params, momentum, ids, labels):
        value, grads = jax.value_and_grad(model)(params, ids, labels)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        params = jax.tree.map(lambda p, m: p - 0.1 * m, params, momentum)
        return params, momentum, value

    k = jax.random.split(jax.random.key(0), 4)
    params = {"table": jax.random.normal(k[0], (20, 16)), "w": jax.random.normal(k[1], (16, 16)),
              "head": jax.random.normal(k[2], (16, 7)) * 0.3,
              "position": jax.random.normal(k[3], (8, 16))}
    momentum = jax.tree.map(jnp.zeros_like, params)
    for i in range(steps):
        ids = jax.random.randint(jax.random.key(i), (16, 8), 0, 20)
        labels = jax.random.randint(jax.random.key(i + 10), (16, 8), 0, 7)
        params, momentum, value = step(params, momentum, ids, labels)
        print(value)
    return params, value


if __name__ == "__main__":
    main()
