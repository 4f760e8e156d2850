"""Programs of more than one shard_map: explicit axes, a part in a shard_map, automatic axes."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from .catalog import array, mesh, program

X = array(8, 16, at=("dp",))
W1 = array(16, 32, at=(None, "tp"))
W2 = array(32, 16, at=("tp",))


@program(X, W1, W2, mapped=False)
def explicit_mlp(x, w1, w2):
    y = jnp.einsum("bh,hm->bm", jnp.tanh(x @ w1), w2, out_sharding=P("dp"))
    return jnp.sum(y * y)


@program(X, W1, W2, mapped=False)
def explicit_unreduced(x, w1, w2):
    """The sum stays pending and is scattered later."""
    h = jnp.tanh(x @ w1)
    y = reshard(
        jnp.einsum("bh,hm->bm", h, w2, out_sharding=P("dp", unreduced={"tp"})), P("dp", "tp")
    )
    return jnp.sum(y * y)


@program(X, array(16, 16, at=("dp",)), mapped=False)
def explicit_fsdp(x, w):
    whole = reshard(w, P(None, None, reduced={"dp"}))
    return jnp.sum(jnp.tanh(x @ whole))


@program(X, array(16, 16), array(16), mapped=False)
def explicit_ddp(x, w, b):
    return jnp.mean(jnp.tanh(x @ w + b) ** 2)


@program(array(8, 16, 8, at=("dp", None, "tp")), mapped=False)
def explicit_norm(x):
    """A mean over a dimension that is cut."""
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    return jnp.sum(centred * lax.rsqrt(jnp.mean(centred * centred, axis=-1, keepdims=True) + 1e-5))


@program(X, W1, W2, mapped=False)
def two_shard_maps(x, w1, w2):
    """One for each half of the layer, what is between them on explicit axes."""
    first = jax.shard_map(
        lambda x, w: x @ w, mesh=mesh(), in_specs=(P("dp"), P(None, "tp")), out_specs=P("dp", "tp")
    )
    second = jax.shard_map(
        lambda h, w: lax.psum(h @ w, "tp"),
        mesh=mesh(),
        in_specs=(P("dp", "tp"), P("tp")),
        out_specs=P("dp"),
    )
    y = second(jnp.tanh(first(x, w1)), w2)
    return jnp.sum(y * y)


@program(X, W1, W2, mapped=False)
def unreduced_boundary(x, w1, w2):
    """A pending sum leaves the region."""
    f = jax.shard_map(
        lambda x, a, b: lax.pcast(jnp.tanh(x @ a) @ b, "tp", to="unreduced"),
        mesh=mesh(),
        in_specs=(P("dp"), P(None, "tp"), P("tp")),
        out_specs=P("dp", unreduced={"tp"}),
    )
    y = reshard(f(x, w1, w2), P("dp"))
    return jnp.sum(y * y)


@program(X, W1, W2, mapped=False, auto=True)
def compiler_axes_outside(x, w1, w2):
    from jax.sharding import AxisType

    def body(x, w1, w2):
        return lax.psum(jnp.sum(lax.psum(jnp.tanh(x @ w1) @ w2, "tp") ** 2), "dp")

    specs = (P("dp"), P(None, "tp"), P("tp"))
    outside = mesh(AxisType.Auto)
    return jax.shard_map(body, mesh=outside, in_specs=specs, out_specs=P())(x, w1, w2)
