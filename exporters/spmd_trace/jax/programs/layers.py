"""Layers under tensor, data and expert parallelism, each the body of a shard_map."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from .catalog import array, program

X = array(8, 16, at=("dp",))
W1 = array(16, 32, at=(None, "tp"))
W2 = array(32, 16, at=("tp",))


def _loss(y):
    return lax.psum(jnp.sum(y * y), ("dp",))


@program(X, W1, W2)
def tp_mlp(x, w1, w2):
    """Column-wise, then row-wise."""
    return _loss(lax.psum(jax.nn.gelu(x @ w1) @ w2, "tp"))


@program(X, W1, W2, array(32, at=("tp",)), array(16))
def tp_mlp_with_bias(x, w1, w2, b1, b2):
    return _loss(lax.psum(jnp.tanh(x @ w1 + b1) @ w2, "tp") + b2)


@program(array(8, 16, at=(("dp", "tp"),)), W1, W2, array(16))
def sequence_parallel_mlp(x, w1, w2, scale):
    """The norm on rows of each rank; gathered before, scattered after the layer."""
    normed = x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-5) * scale
    whole = lax.all_gather(normed, "tp", tiled=True)
    y = lax.psum_scatter(jax.nn.silu(whole @ w1) @ w2, "tp", tiled=True)
    return lax.psum(jnp.sum(y * y), ("dp", "tp"))


@program(X, array(16, 16))
def ddp(x, w):
    """The cast that mixing implies is differentiated to the sum over ranks."""
    y = jnp.tanh(x @ w)
    return lax.pmean(jnp.mean(y * y), "dp")


@program(X, array(16, 16, at=("dp",)), array(16, at=("dp",)))
def fsdp(x, w, b):
    """Gathered as reduced: backward scatters the sum."""
    whole = lax.all_gather(w, "dp", tiled=True, to="reduced")
    bias = lax.all_gather(b, "dp", tiled=True, to="reduced")
    return _loss(jnp.tanh(x @ whole) + bias)


@program(X, array(16, 16, at=("dp",)))
def fsdp_varying(x, w):
    """Gathered as varying, JAX's default."""
    return _loss(jnp.tanh(x @ lax.all_gather(w, "dp", tiled=True)))


@program(X, array(16, 16, at=("dp",)))
def fsdp_invariant(x, w):
    """Gathered as invariant: backward sums, then takes its part."""
    return _loss(jnp.tanh(x @ lax.all_gather(w, "dp", tiled=True, to="invarying")))


@program(X, array(16, 32, at=("dp", "tp")), array(32, 16, at=("tp", "dp")))
def fsdp_tp(x, w1, w2):
    w1 = lax.all_gather(w1, "dp", axis=0, tiled=True, to="reduced")
    w2 = lax.all_gather(w2, "dp", axis=1, tiled=True, to="reduced")
    return _loss(lax.psum(jnp.tanh(x @ w1) @ w2, "tp"))


@program(X, array(16, 16, reduced={"dp"}))
def reduced_argument(x, w):
    """The gradient of a reduced argument leaves unreduced."""
    return _loss(jnp.tanh(x @ w))


@program(X, W1, W2)
def unreduced_on_the_way(x, w1, w2):
    """The sum is pending over a product with what is the same on all ranks."""
    y = lax.pcast(jnp.tanh(x @ w1) @ w2, "tp", to="unreduced")
    return _loss(lax.psum(y + y, "tp"))


@program(X, W1, W2)
def sum_then_scatter(x, w1, w2):
    y = lax.pcast(jnp.tanh(x @ w1) @ w2, "tp", to="unreduced")
    part = lax.psum_scatter(y, "tp", scatter_dimension=1, tiled=True)
    return lax.psum(jnp.sum(part * part), ("dp", "tp"))


@program(array(8, at=("dp",), dtype=jnp.int32), array(64, 16, at=("tp",)))
def vocabulary_embedding(tokens, table):
    """Rows of other ranks are masked out, then summed."""
    rows = table.shape[0]
    local = tokens - lax.axis_index("tp") * rows
    mine = (local >= 0) & (local < rows)
    picked = jnp.take(table, jnp.clip(local, 0, rows - 1), axis=0)
    return _loss(lax.psum(jnp.where(mine[:, None], picked, 0.0), "tp"))


@program(X, array(16, 64, at=(None, "tp")), array(8, at=("dp",), dtype=jnp.int32))
def vocabulary_cross_entropy(x, w, labels):
    """The maximum and the sum of exponents over all ranks, the label's logit from one of them."""
    logits = x @ w
    top = lax.pmax(lax.stop_gradient(jnp.max(logits, axis=-1)), "tp")
    total = lax.psum(jnp.sum(jnp.exp(logits - top[:, None]), axis=-1), "tp")
    local = labels - lax.axis_index("tp") * logits.shape[1]
    mine = (local >= 0) & (local < logits.shape[1])
    index = jnp.clip(local, 0, logits.shape[1] - 1)
    picked = jnp.take_along_axis(logits, index[:, None], axis=1)[:, 0]
    label = lax.psum(jnp.where(mine, picked, 0.0), "tp")
    return lax.psum(jnp.sum(jnp.log(total) + top - label), "dp") / 8


ROWS = array(32, 16, at=(("dp", "tp"),))
ROUTER = array(16, 4)
EXPERTS = array(4, 16, 16, at=("tp",))


def _through_experts(rows, experts):
    """One expert a rank; rows are grouped by the rank that they go to."""
    there = lax.all_to_all(rows, "tp", split_axis=0, concat_axis=0, tiled=True)
    done = jax.nn.relu(there @ experts[0])
    return lax.all_to_all(done, "tp", split_axis=0, concat_axis=0, tiled=True)


@program(ROWS, ROUTER, EXPERTS)
def moe_dispatch(x, router, experts):
    """Each expert takes two rows of each rank; what is too much is dropped."""
    chances = jax.nn.softmax(x @ router, axis=-1)
    chosen = jax.nn.one_hot(jnp.argmax(chances, axis=-1), 4)
    place = (jnp.cumsum(chosen, axis=0) - 1) * chosen
    slots = chosen[:, :, None] * jax.nn.one_hot(jnp.sum(place, axis=-1).astype(int), 2)[:, None, :]
    done = _through_experts(jnp.einsum("nec,nm->ecm", slots, x), experts)
    y = jnp.einsum("nec,ecm->nm", slots, done) * jnp.max(chances, axis=-1)[:, None]
    return lax.psum(jnp.sum(y * y), ("dp", "tp"))


@program(ROWS, ROUTER, EXPERTS)
def moe_sorted(x, router, experts):
    """Rows in the order of their chances, the same number to each expert."""
    chances = jnp.max(jax.nn.softmax(x @ router, axis=-1), axis=-1)
    rows = x[jnp.argsort(-chances)].reshape(4, -1, x.shape[-1])
    y = _through_experts(rows, experts).reshape(x.shape) * chances[:, None]
    return lax.psum(jnp.sum(y * y), ("dp", "tp"))


@jax.custom_vjp
def _copied(x):
    return lax.pcast(x, "tp", to="varying")


_copied.defvjp(lambda x: (_copied(x), None), lambda _, g: (lax.psum(g, "tp"),))


@jax.custom_vjp
def _summed(x):
    return lax.psum(x, "tp")


_summed.defvjp(lambda x: (_summed(x), None), lambda _, g: (lax.pcast(g, "tp", to="varying"),))


@program(X, W1, W2)
def megatron_functions(x, w1, w2):
    """Megatron's f and g, with their backward written by hand."""
    return _loss(_summed(jnp.tanh(_copied(x) @ w1) @ w2))


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _clipped(x, limit):
    return x


_clipped.defvjp(lambda x, limit: (x, None), lambda limit, _, g: (jnp.clip(g, -limit, limit),))


@program(X, array(16, 16))
def clipped_gradient(x, w):
    return _loss(_clipped(x @ w, 1.0))


@program(X, array(16, 16), array(dtype=jnp.uint32, at=()))
def dropout(x, w, seed):
    """A state for each rank along dp, out of one that is the same on all."""
    key = jax.random.fold_in(jax.random.key(seed), lax.axis_index("dp"))
    y = x @ w
    kept = jax.random.bernoulli(key, 0.9, y.shape)
    return _loss(jnp.where(kept, y / 0.9, 0.0))
