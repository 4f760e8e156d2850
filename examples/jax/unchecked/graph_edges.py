"""Message passing on a graph whose edges are cut over the ranks: every rank has all nodes."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

AXES = {"ep": 4}
NODES = 10


def layer(h, src, dst, w, degree):
    sent = h[src] @ w
    arrived = jax.ops.segment_sum(sent, dst, num_segments=NODES)
    arrived = lax.psum(arrived, "ep")
    return jax.nn.relu(h + arrived / degree[:, None])


def train(params, h, src, dst, target):
    ones = jnp.ones(dst.shape[0])
    degree = 1.0 + lax.psum(jax.ops.segment_sum(ones, dst, num_segments=NODES), "ep")

    def loss_of(params):
        out = h
        for w in params["layers"]:
            out = layer(out, src, dst, w, degree)
        return jnp.mean((out @ params["head"] - target) ** 2)

    loss = loss_of(params)
    return loss, degree


def program(mesh):
    mapped = jax.shard_map(train, mesh=mesh, in_specs=(P(), P(), P("ep"), P("ep"), P()),
                           out_specs=(P(), P()), check_vma=False)

    def step(params, *rest):
        (loss, degree), grads = jax.value_and_grad(mapped, has_aux=True)(params, *rest)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss, degree

    k = jax.random.split(jax.random.key(4), 7)
    params = {"layers": [jax.random.normal(k[i], (6, 6)) * 0.3 for i in range(2)],
              "head": jax.random.normal(k[2], (6, 2))}
    edges = [jax.random.randint(k[3 + i], (32,), 0, NODES) for i in range(2)]
    return jax.jit(step), (params, jax.random.normal(k[5], (NODES, 6)), *edges,
                           jax.random.normal(k[6], (NODES, 2)))
