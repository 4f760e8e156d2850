"""A contrastive loss: embeddings of all ranks are gathered, each rank has the rows of its batch."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

AXES = {"dp": 8}


def unit(x):
    return x / jnp.linalg.norm(x, axis=-1, keepdims=True)


def loss_of(wi, wt, images, texts):
    a, b = unit(images @ wi), unit(texts @ wt)
    all_b = lax.all_gather(b, "dp", axis=0, tiled=True)
    logits = a @ all_b.T * 5.0
    rows = a.shape[0]
    labels = lax.axis_index("dp") * rows + jnp.arange(rows)
    logp = jax.nn.log_softmax(logits)
    return -jnp.mean(jnp.take_along_axis(logp, labels[:, None], 1))


def train(wi, wt, images, texts):
    loss, grads = jax.value_and_grad(loss_of, (0, 1))(wi, wt, images, texts)
    gi, gt = lax.pmean(grads, "dp")
    return wi - 0.1 * gi, wt - 0.1 * gt, lax.pmean(loss, "dp")


def program(mesh):
    step = jax.shard_map(train, mesh=mesh, in_specs=(P(), P(), P("dp"), P("dp")),
                         out_specs=(P(), P(), P()), check_vma=False)
    k = jax.random.split(jax.random.key(15), 4)
    normal = jax.random.normal
    return jax.jit(step), (normal(k[0], (6, 5)), normal(k[1], (7, 5)), normal(k[2], (24, 6)),
                           normal(k[3], (24, 7)))
