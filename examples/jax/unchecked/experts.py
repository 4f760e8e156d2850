"""Experts over the ranks: tokens are sent with an all_to_all, and come back with another one."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

AXES = {"ep": 4}
EXPERTS, CAPACITY = 4, 16


def experts(x, router, w1, w2):
    gates = jax.nn.softmax(x @ router)
    chosen = jnp.argmax(gates, -1)
    onehot = jax.nn.one_hot(chosen, EXPERTS)
    place = (jnp.cumsum(onehot, 0) - 1) * onehot
    slots = jax.nn.one_hot(place.sum(-1), CAPACITY)
    dispatch = jnp.einsum("te,tc->tec", onehot, slots)
    sent = jnp.einsum("tec,td->ecd", dispatch, x)
    mine = lax.all_to_all(sent, "ep", split_axis=0, concat_axis=1, tiled=True)
    h = jax.nn.relu(jnp.einsum("ecd,edf->ecf", mine, w1))
    h = jnp.einsum("ecf,efd->ecd", h, w2)
    back = lax.all_to_all(h, "ep", split_axis=1, concat_axis=0, tiled=True)
    weight = (gates * onehot).sum(-1)
    return jnp.einsum("tec,ecd->td", dispatch, back) * weight[:, None]


def train(router, w1, w2, x, y):
    def loss_of(router, w1, w2):
        out = x + experts(x, router, w1, w2)
        return jnp.mean((out - y) ** 2) / lax.axis_size("ep")

    loss, (g_router, g1, g2) = jax.value_and_grad(loss_of, (0, 1, 2))(router, w1, w2)
    loss = lax.psum(loss, "ep")
    router = router - 0.1 * lax.psum(g_router, "ep")
    return router, w1 - 0.1 * g1, w2 - 0.1 * g2, loss


def program(mesh):
    step = jax.shard_map(train, mesh=mesh, in_specs=(P(), P("ep"), P("ep"), P("ep"), P("ep")),
                         out_specs=(P(), P("ep"), P("ep"), P()), check_vma=False)
    k = jax.random.split(jax.random.key(12), 5)
    normal = jax.random.normal
    return jax.jit(step), (normal(k[0], (6, EXPERTS)), normal(k[1], (EXPERTS, 6, 10)),
                           normal(k[2], (EXPERTS, 10, 6)), normal(k[3], (16, 6)),
                           normal(k[4], (16, 6)))
