"""Loops, branches, rematerialisation and pipelines inside a shard_map."""

import jax
import jax.numpy as jnp
from jax import lax

from .catalog import array, program

X = array(8, 16, at=("dp",))
W1 = array(3, 16, 32, at=(None, None, "tp"))
W2 = array(3, 32, 16, at=(None, "tp"))


def _loss(y, axes=("dp",)):
    return lax.psum(jnp.sum(y * y), axes)


def _layer(x, w1, w2):
    return x + lax.psum(jnp.tanh(x @ w1) @ w2, "tp")


@program(X, W1, W2)
def scan_over_layers(x, w1, w2):
    y, _ = lax.scan(lambda x, w: (_layer(x, *w), None), x, (w1, w2))
    return _loss(y)


@program(X, W1, W2)
def scan_over_remat_layers(x, w1, w2):
    """Each layer is computed again in backward."""
    layer = jax.checkpoint(_layer)
    y, _ = lax.scan(lambda x, w: (layer(x, *w), None), x, (w1, w2))
    return _loss(y)


@program(X, array(3, 16, 16, at=(None, "dp")))
def scan_over_fsdp_layers(x, ws):
    def layer(x, w):
        return jnp.tanh(x @ lax.all_gather(w, "dp", tiled=True, to="reduced")), None

    return _loss(lax.scan(layer, x, ws)[0])


@program(X, array(16, 32, at=(None, "tp")), array(32, 16, at=("tp",)))
def remat_block(x, w1, w2):
    return _loss(jax.checkpoint(_layer)(x, w1, w2))


@program(X, array(16, 32, at=(None, "tp")), array(32, 16, at=("tp",)))
def remat_saving_dots(x, w1, w2):
    policy = jax.checkpoint_policies.dots_saveable
    return _loss(jax.checkpoint(_layer, policy=policy)(x, w1, w2))


@program(X, array(16, 16), array(dtype=jnp.bool_))
def branch(x, w, flag):
    """All ranks take the same branch."""
    return _loss(lax.cond(flag, lambda x: jnp.tanh(x @ w), lambda x: x, x))


@program(X, array(16, 32, at=(None, "tp")), array(32, 16, at=("tp",)), array(dtype=jnp.bool_))
def branch_with_collective(x, w1, w2, flag):
    return _loss(lax.cond(flag, lambda x: _layer(x, w1, w2), lambda x: x, x))


@program(X, array(16, 16))
def branch_by_rank(x, w):
    """Ranks differ in which branch they take; nothing communicates in it."""
    first = lax.axis_index("dp") == 0
    return _loss(lax.cond(first, lambda x: jnp.sin(x @ w), lambda x: x, x))


@program(X, array(16, 16, grad=False), array(dtype=jnp.int32))
def loop_until(x, w, steps):
    """A loop of unknown length has no gradient: only its result is used as it is."""

    def again(carry):
        return carry[0] < steps

    def step(carry):
        return carry[0] + 1, jnp.tanh(carry[1] @ w)

    _, y = lax.while_loop(again, step, (0, lax.stop_gradient(x)))
    return _loss(x * lax.stop_gradient(y))


@program(X, array(16, 16))
def counted_loop(x, w):
    return _loss(lax.fori_loop(0, 3, lambda _, x: jnp.tanh(x @ w), x))


@program(array(4, 8, 16, at=(None, "dp")), array(4, 16, 16, at=("tp",)))
def pipeline(microbatches, stages):
    """Four stages along tp; what a stage has done goes to the next one."""
    count = microbatches.shape[0]
    turn = [(rank, (rank + 1) % 4) for rank in range(4)]
    first, last = lax.axis_index("tp") == 0, lax.axis_index("tp") == 3
    weights = stages[0]

    def step(state, tick):
        new = lax.dynamic_index_in_dim(microbatches, jnp.minimum(tick, count - 1), keepdims=False)
        done = jnp.tanh(jnp.where(first, new, state) @ weights)
        return lax.ppermute(done, "tp", turn), jnp.where(last, done, 0.0)

    start = lax.pcast(jnp.zeros(microbatches.shape[1:]), ("dp", "tp"), to="varying")
    _, outs = lax.scan(step, start, jnp.arange(count + 3))
    return _loss(lax.psum(outs[3:], "tp"))


@program(X, array(16, 16))
def accumulated_gradients(x, w):
    """Microbatches in a loop, the loss summed once."""

    def step(total, part):
        return total + jnp.sum(jnp.tanh(part @ w) ** 2), None

    start = lax.pcast(jnp.zeros(()), "dp", to="varying")
    total, _ = lax.scan(step, start, x.reshape(2, -1, 16))
    return lax.psum(total, "dp")


def _with_edges(x, axis, dim):
    """A rank's rows between the last one of the rank before and the first one of that after."""
    ranks, rows = lax.axis_size(axis), x.shape[dim]
    first, last = lax.slice_in_dim(x, 0, 1, axis=dim), lax.slice_in_dim(x, rows - 1, rows, axis=dim)
    before = lax.ppermute(last, axis, [(i, i + 1) for i in range(ranks - 1)])
    after = lax.ppermute(first, axis, [(i + 1, i) for i in range(ranks - 1)])
    return jnp.concatenate([before, x, after], dim)


@program(array(8, 16, at=("dp", "tp")), array(8, 16, at=("dp", "tp")))
def stencil(u, source):
    """Heat in two dimensions, in a loop over time."""

    def turn(u, _):
        tall, wide = _with_edges(u, "dp", 0), _with_edges(u, "tp", 1)
        around = tall[:-2] + tall[2:] + wide[:, :-2] + wide[:, 2:]
        return u + 0.2 * (around - 4 * u) + source, None

    return _loss(lax.scan(turn, u, None, length=3)[0], ("dp", "tp"))


@program(array(4, 16, 8, 3, at=(None, "tp")), array(3, 3, 3, 6))
def rows_of_images(x, kernel):
    """A convolution of images that are cut by rows."""
    y = lax.conv_general_dilated(_with_edges(x, "tp", 1), kernel, (1, 1), ((0, 0), (1, 1)),
                                 dimension_numbers=("NHWC", "HWIO", "NHWC"))  # fmt: skip
    return _loss(jnp.tanh(y), ("tp",))
