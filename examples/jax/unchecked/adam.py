"""A whole step with Adam, weight decay and a metric, over data and tensor ranks."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

AXES = {"dp": 2, "tp": 4}


def forward(params, x):
    h = jax.nn.relu(x @ params["w1"] + params["b1"])
    return lax.psum(h @ params["w2"], "tp") + params["b2"]


def train(params, m, v, x, labels):
    def loss_of(params):
        logits = forward(params, x)
        logp = jax.nn.log_softmax(logits)
        loss = -jnp.mean(jnp.take_along_axis(logp, labels[:, None], 1))
        return loss / lax.axis_size("tp"), logits

    (loss, logits), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
    grads["b2"] = lax.psum(grads["b2"], "tp")
    grads = lax.pmean(grads, "dp")
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
    v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, grads)
    params = jax.tree.map(lambda p, m, v: p - 0.01 * (m / (jnp.sqrt(v) + 1e-8) + 0.1 * p),
                          params, m, v)
    accuracy = lax.pmean(jnp.mean(logits.argmax(-1) == labels), "dp")
    return params, m, v, lax.pmean(lax.psum(loss, "tp"), "dp"), accuracy


def program(mesh):
    specs = {"w1": P(None, "tp"), "b1": P("tp"), "w2": P("tp", None), "b2": P()}
    step = jax.shard_map(train, mesh=mesh, in_specs=(specs, specs, specs, P("dp"), P("dp")),
                         out_specs=(specs, specs, specs, P(), P()), check_vma=False)
    shapes = {"w1": (6, 16), "b1": (16,), "w2": (16, 5), "b2": (5,)}
    k = jax.random.split(jax.random.key(18), 6)
    params = {n: jax.random.normal(k[i], s) for i, (n, s) in enumerate(shapes.items())}
    m = jax.tree.map(lambda p: 0.1 * p, params)
    v = jax.tree.map(lambda p: 0.1 * p * p, params)
    return jax.jit(step), (params, m, v, jax.random.normal(k[4], (10, 6)),
                           jax.random.randint(k[5], (10,), 0, 5))
