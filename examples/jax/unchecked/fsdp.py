"""Weights cut over the data ranks, gathered where used; the gradient of a gather is a scatter."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

AXES = {"fsdp": 8}


def gathered(w):
    return lax.all_gather(w, "fsdp", axis=0, tiled=True)


def loss_of(params, x, y):
    h = jax.nn.relu(x @ gathered(params["w1"]))
    h = h @ gathered(params["w2"]) + params["bias"]
    return jnp.mean((h - y) ** 2)


def train(params, x, y):
    ranks = lax.axis_size("fsdp")
    loss, grads = jax.value_and_grad(loss_of)(params, x, y)
    cut = {n: grads[n] / ranks for n in ("w1", "w2")}
    whole = {"bias": lax.pmean(grads["bias"], "fsdp")}
    grads = {**cut, **whole}
    params = jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)
    return params, lax.pmean(loss, "fsdp")


def program(mesh):
    specs = {"w1": P("fsdp"), "w2": P("fsdp"), "bias": P()}
    step = jax.shard_map(train, mesh=mesh, in_specs=(specs, P("fsdp"), P("fsdp")),
                         out_specs=(specs, P()), check_vma=False)
    k = jax.random.split(jax.random.key(5), 5)
    params = {"w1": jax.random.normal(k[0], (8, 16)), "w2": jax.random.normal(k[1], (16, 5)),
              "bias": jax.random.normal(k[2], (5,))}
    return jax.jit(step), (params, jax.random.normal(k[3], (24, 8)),
                           jax.random.normal(k[4], (24, 5)))
