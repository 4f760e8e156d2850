"""A jitted transformer with sharding constraints; only the attention is a shard_map."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.lax import with_sharding_constraint as constrain
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P


def attend(q, k, v, scale):
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * scale
    out = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
    return out, lax.pmax(lax.stop_gradient(jnp.max(jnp.abs(scores))), ("data", "model"))


def main(data=2, model=4, steps=2):
    mesh = jax.make_mesh((data, model), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    on = lambda *spec: NamedSharding(mesh, P(*spec))
    heads = P("data", None, "model", None)
    attention = jax.shard_map(attend, mesh=mesh, in_specs=(heads, heads, heads, P()),
                              out_specs=(heads, P()), check_vma=False)

    def forward(params, x):
        x = constrain(x, on("data"))
        q, k, v = (jnp.einsum("bsd,dhk->bshk", x, params[name]) for name in ("q", "k", "v"))
        out, top = attention(q, k, v, params["scale"])
        out = jnp.einsum("bshk,hkd->bsd", out, params["o"])
        x = x + constrain(out, on("data", None, None))
        h = constrain(jax.nn.gelu(x @ params["up"]), on("data", None, "model"))
        return x + h @ params["down"], top

    def loss_fn(params, x, y):
        out, top = forward(params, x)
        return jnp.mean(jnp.square(out - y)), top

    shard = {"q": on(None, "model"), "k": on(None, "model"), "v": on(None, "model"),
             "o": on("model"), "up": on(None, "model"), "down": on("model"), "scale": on()}

    @partial(jax.jit, in_shardings=(shard, on("data"), on("data")),
             out_shardings=(shard, on(), on()), donate_argnums=0)
    def train_step(params, x, y):
        (loss, top), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, x, y)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss, top

    k = jax.random.split(jax.random.key(0), 9)
    d, h = 8, 4
    params = {name: jax.random.normal(k[i], (d, h, d // h)) * 0.3 for i, name in enumerate("qkv")}
    params |= {"o": jax.random.normal(k[3], (h, d // h, d)) * 0.3, "scale": jnp.float32(0.7),
               "up": jax.random.normal(k[4], (d, 4 * d)) * 0.3,
               "down": jax.random.normal(k[5], (4 * d, d)) * 0.3}
    params = jax.device_put(params, shard)
    for i in range(steps):
        x, y = jax.random.normal(k[6 + i], (2, 6, 5, d))
        params, loss, top = train_step(params, x, y)
        print(loss, top)
    return params, loss, top


if __name__ == "__main__":
    main()
