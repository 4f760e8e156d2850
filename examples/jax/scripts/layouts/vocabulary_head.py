"""A GSPMD model whose loss is a shard_map over the vocabulary only, not over the other axis."""

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P


def vocabulary_loss(h, head, labels):
    logits = jnp.einsum("bsd,dv->bsv", h, head)
    top = lax.pmax(lax.stop_gradient(logits.max(-1)), "vocab")
    total = lax.psum(jnp.sum(jnp.exp(logits - top[..., None]), -1), "vocab")
    here = labels - lax.axis_index("vocab") * logits.shape[-1]
    mine = (0 <= here) & (here < logits.shape[-1])
    picked = jnp.take_along_axis(logits, jnp.where(mine, here, 0)[..., None], -1)[..., 0]
    picked = lax.psum(jnp.where(mine, picked, 0.0), "vocab")
    return jnp.log(total) + top - picked


def main(data=2, vocab=4, steps=2):
    mesh = jax.make_mesh((data, vocab), ("data", "vocab"), axis_types=(AxisType.Auto,) * 2)
    loss_map = jax.shard_map(vocabulary_loss, mesh=mesh, axis_names={"vocab"},
                             in_specs=(P(), P(None, "vocab"), P()), out_specs=P(),
                             check_vma=False)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.3))

    def loss_fn(params, tokens):
        h = params["embed"][tokens[:, :-1]]
        h = jax.lax.with_sharding_constraint(h, NamedSharding(mesh, P("data", None, None)))
        h = h + jnp.tanh(h @ params["w"])
        weight = jnp.where(tokens[:, 1:] == 0, 0.0, 1.0)
        losses = loss_map(h, params["head"], tokens[:, 1:])
        return jnp.sum(losses * weight) / jnp.sum(weight)

    @jax.jit
    def step(params, opt_state, tokens):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
        norm = optax.global_norm(grads)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {"loss": loss, "norm": norm}

    k = jax.random.split(jax.random.key(0), 3)
    params = {"embed": jax.random.normal(k[0], (24, 8)), "w": jax.random.normal(k[1], (8, 8)),
              "head": jax.random.normal(k[2], (8, 24))}
    params["head"] = jax.device_put(params["head"], NamedSharding(mesh, P(None, "vocab")))
    opt_state = tx.init(params)
    for i in range(steps):
        tokens = jax.random.randint(jax.random.key(i), (8, 6), 0, 24)
        tokens = jax.device_put(tokens, NamedSharding(mesh, P("data")))
        params, opt_state, metrics = step(params, opt_state, tokens)
        print(metrics)
    return params, metrics


if __name__ == "__main__":
    main()
