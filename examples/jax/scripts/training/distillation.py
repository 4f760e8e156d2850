"""A student learns from a teacher of another layout: data-parallel from tensor-parallel."""

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P


def main(dp=4, tp=2, steps=2):
    mesh = jax.make_mesh((dp, tp), ("dp", "tp"), axis_types=(AxisType.Auto,) * 2)

    def teacher(w, x):
        h = jax.nn.relu(x @ w["up"])
        return lax.psum(h @ w["down"], "tp") + w["bias"]

    teacher = jax.shard_map(teacher, mesh=mesh, out_specs=P("dp"), check_vma=False,
                            in_specs=({"up": P(None, "tp"), "down": P("tp"), "bias": P()}, P("dp")))

    def kl_of(student, x, target, temperature):
        logits = jnp.tanh(x @ student["w"] + student["b"]) @ student["head"]
        logq = jax.nn.log_softmax(logits / temperature)
        p = jax.nn.softmax(target / temperature)
        kl = jnp.sum(p * (jnp.log(p) - logq), axis=-1)
        return lax.psum(jnp.sum(kl), ("dp", "tp")) / (x.shape[0] * dp * tp)

    kl_of = jax.shard_map(kl_of, mesh=mesh, in_specs=(P(), P(("dp", "tp")), P(("dp", "tp")), P()),
                          out_specs=P(), check_vma=False)
    tx = optax.lion(1e-2)

    @jax.jit
    def step(student, state, frozen, x):
        target = lax.stop_gradient(teacher(frozen, x))
        loss, grads = jax.value_and_grad(kl_of)(student, x, target, 2.0)
        norm = optax.global_norm(grads)
        updates, state = tx.update(grads, state, student)
        return optax.apply_updates(student, updates), state, loss, norm

    k = jax.random.split(jax.random.key(0), 6)
    n = lambda i, *s: jax.random.normal(k[i], s) * 0.5
    frozen = {"up": n(0, 6, 16), "down": n(1, 16, 5), "bias": n(2, 5)}
    student = {"w": n(3, 6, 8), "b": jnp.zeros(8), "head": n(4, 8, 5)}
    student = jax.device_put(student, NamedSharding(mesh, P()))
    state = tx.init(student)
    for i in range(steps):
        x = jax.random.normal(jax.random.key(i), (16, 6))
        student, state, loss, norm = step(student, state, frozen, x)
        print(loss, norm)
    return student, loss, norm


if __name__ == "__main__":
    main()
