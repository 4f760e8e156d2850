"""A scan over stacked layers with rematerialisation, weights cut over fsdp and tensor ranks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

LAYERS, WIDTH, HIDDEN, HEADS, VOCAB = 3, 16, 32, 4, 40

SPECS = {
    "embed": P(None, "fsdp"),
    "layers": {
        "norm": P(None, None),
        "qkv": P(None, "fsdp", None, "tensor", None),
        "out": P(None, "tensor", None, "fsdp"),
        "norm2": P(None, None),
        "up": P(None, "fsdp", "tensor"),
        "down": P(None, "tensor", "fsdp"),
    },
    "final": P(None),
}


def init(key):
    k = jax.random.split(key, 5)
    n = lambda i, *s: jax.random.normal(k[i], s) * 0.2
    return {
        "embed": n(0, VOCAB, WIDTH),
        "layers": {
            "norm": jnp.ones((LAYERS, WIDTH)),
            "qkv": n(1, LAYERS, WIDTH, 3, HEADS, WIDTH // HEADS),
            "out": n(2, LAYERS, HEADS, WIDTH // HEADS, WIDTH),
            "norm2": jnp.ones((LAYERS, WIDTH)),
            "up": n(3, LAYERS, WIDTH, HIDDEN),
            "down": n(4, LAYERS, HIDDEN, WIDTH),
        },
        "final": jnp.ones(WIDTH),
    }


def rms_norm(x, scale):
    var = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
    return x * lax.rsqrt(var + 1e-6) * scale


def whole(w, dim):
    return lax.all_gather(w, "fsdp", axis=dim, tiled=True)


def attention(x, w):
    qkv = jnp.einsum("bsd,dchk->cbshk", x, whole(w["qkv"], 0))
    q, k, v = qkv
    scores = jnp.einsum("bqhk,bshk->bhqs", q, k) / np.sqrt(q.shape[-1])
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    probs = jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1)
    out = jnp.einsum("bhqs,bshk->bqhk", probs, v)
    out = jnp.einsum("bqhk,hkd->bqd", out, whole(w["out"], 2))
    return lax.psum(out, "tensor")


def layer(x, w):
    x = x + attention(rms_norm(x, w["norm"]), w)
    h = jax.nn.silu(rms_norm(x, w["norm2"]) @ whole(w["up"], 0))
    x = x + lax.psum(h @ whole(w["down"], 1), "tensor")
    return x, None


def loss_fn(params, tokens):
    embed = whole(params["embed"], 1)
    x = embed[tokens[:, :-1]]
    body = functools.partial(jax.checkpoint, prevent_cse=False)(layer)
    x, _ = lax.scan(body, x, params["layers"])
    logits = rms_norm(x, params["final"]) @ embed.T
    logp = jax.nn.log_softmax(logits)
    loss = -jnp.take_along_axis(logp, tokens[:, 1:, None], axis=-1).mean()
    return lax.pmean(loss, "fsdp")


def main(fsdp=4, tensor=2, steps=2):
    mesh = Mesh(np.array(jax.devices()[: fsdp * tensor]).reshape(fsdp, tensor), ("fsdp", "tensor"))
    shardings = jax.tree.map(lambda s: NamedSharding(mesh, s), SPECS)
    params = jax.jit(init, out_shardings=shardings)(jax.random.key(0))
    tx = optax.adamw(1e-2, weight_decay=0.1)
    opt_state = tx.init(params)
    loss = jax.shard_map(loss_fn, mesh=mesh, in_specs=(SPECS, P("fsdp")), out_specs=P(),
                         check_vma=False)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def train_step(params, opt_state, tokens):
        value, grads = jax.value_and_grad(loss)(params, tokens)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value, optax.global_norm(grads)

    for i in range(steps):
        tokens = jax.random.randint(jax.random.key(i), (8, 9), 0, VOCAB)
        params, opt_state, value, norm = train_step(params, opt_state, tokens)
        print(i, value, norm)
    return params, value, norm


if __name__ == "__main__":
    main()
