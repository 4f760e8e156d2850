"""Top-1 experts, one group of them on each rank: tokens travel by all_to_all, and come back."""

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

EXPERTS, CAPACITY = 8, 16


def moe(params, x):
    logits = x @ params["router"]
    probs = jax.nn.softmax(logits)
    choice = jnp.argmax(probs, axis=-1)
    gate = jnp.max(probs, axis=-1)
    onehot = jax.nn.one_hot(choice, EXPERTS)
    place = jnp.cumsum(onehot, axis=0) * onehot - 1
    dispatch = onehot[..., None] * jax.nn.one_hot(place, CAPACITY)
    sent = jnp.einsum("tec,td->ecd", dispatch, x)
    got = lax.all_to_all(sent, "expert", split_axis=0, concat_axis=1, tiled=True)
    h = jax.nn.relu(jnp.einsum("ecd,edf->ecf", got, params["up"]))
    out = jnp.einsum("ecf,efd->ecd", h, params["down"])
    back = lax.all_to_all(out, "expert", split_axis=1, concat_axis=0, tiled=True)
    y = jnp.einsum("tec,ecd->td", dispatch, back) * gate[:, None]
    fraction = lax.pmean(onehot.mean(0), "expert")
    mean_prob = lax.pmean(probs.mean(0), "expert")
    balance = EXPERTS * jnp.sum(fraction * mean_prob)
    return x + y, balance


def main(expert=4, steps=2):
    mesh = jax.make_mesh((expert,), ("expert",), axis_types=(AxisType.Auto,))
    specs = {"router": P(), "up": P("expert"), "down": P("expert")}
    tx = optax.sgd(0.1, momentum=0.9)

    def loss_of(params, x, y):
        out, balance = moe(params, x)
        error = lax.pmean(jnp.mean((out - y) ** 2), "expert")
        return error + 0.01 * balance

    loss_of = jax.shard_map(loss_of, mesh=mesh, in_specs=(specs, P("expert"), P("expert")),
                            out_specs=P(), check_vma=False)

    def train_step(params, opt_state, x, y):
        loss, grads = jax.value_and_grad(loss_of)(params, x, y)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss, optax.global_norm(grads)

    train_step = jax.jit(train_step)
    k = jax.random.split(jax.random.key(0), 5)
    params = {"router": jax.random.normal(k[0], (6, EXPERTS)),
              "up": jax.random.normal(k[1], (EXPERTS, 6, 10)) * 0.3,
              "down": jax.random.normal(k[2], (EXPERTS, 10, 6)) * 0.3}
    params = {n: jax.device_put(p, NamedSharding(mesh, specs[n])) for n, p in params.items()}
    opt_state = tx.init(params)
    for i in range(steps):
        x, y = jax.random.normal(jax.random.fold_in(k[3], i), (2, 32, 6))
        params, opt_state, loss, norm = train_step(params, opt_state, x, y)
        print(loss, norm)
    return params, loss, norm


if __name__ == "__main__":
    main()
