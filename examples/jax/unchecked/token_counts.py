"""A loss over tokens that are not padding: losses and counts are both summed over the ranks."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

AXES = {"dp": 8}


def token_losses(w, x, labels):
    logp = jax.nn.log_softmax(x @ w)
    return -jnp.take_along_axis(logp, labels[..., None], -1)[..., 0]


def train(w, x, labels, mask):
    count = lax.psum(mask.sum(), "dp")

    def loss_of(w):
        return jnp.sum(token_losses(w, x, labels) * mask) / count

    loss, grad = jax.value_and_grad(loss_of)(w)
    loss = lax.psum(loss, "dp")
    grad = lax.psum(grad, "dp")
    return w - 0.1 * grad, loss


def program(mesh):
    step = jax.shard_map(train, mesh=mesh, in_specs=(P(), P("dp"), P("dp"), P("dp")),
                         out_specs=(P(), P()), check_vma=False)
    k = jax.random.split(jax.random.key(11), 4)
    mask = (jax.random.uniform(k[3], (16, 5)) > 0.4).astype(jnp.float32)
    return jax.jit(step), (jax.random.normal(k[0], (6, 9)), jax.random.normal(k[1], (16, 5, 6)),
                           jax.random.randint(k[2], (16, 5), 0, 9), mask)
