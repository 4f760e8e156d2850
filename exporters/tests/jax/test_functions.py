"""Functions of JAX in a shard_map, on blocks of a batch, forward and with gradients, have no
findings, but for those that draw with one key what should differ.
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
import of_one_jax  # noqa: F401  what is inferred is of one version
import pytest
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P

from spmd_trace.jax import lint

pytestmark = pytest.mark.skipif(
    "SPMDLINT" not in os.environ, reason="SPMDLINT does not name a checker"
)

KEY = jax.random.key(0)
# fmt: off
FUNCTIONS = {
    "inv": lambda x: jnp.linalg.inv(x),
    "det": jnp.linalg.det,
    "slogdet": lambda x: jnp.linalg.slogdet(x)[1],
    "cholesky": jnp.linalg.cholesky,
    "qr": lambda x: jnp.linalg.qr(x)[0],
    "svd": lambda x: jnp.linalg.svd(x)[1],
    "eigh": lambda x: jnp.linalg.eigh(x)[0],
    "solve": lambda x: jnp.linalg.solve(x, jnp.ones((x.shape[0], 4, 1))),
    "pinv": jnp.linalg.pinv,
    "norm": lambda x: jnp.linalg.norm(x, axis=(1, 2)),
    "expm": lambda x: jax.vmap(jax.scipy.linalg.expm)(x),
    "cumsum": lambda x: jnp.cumsum(x, 1),
    "cumprod": lambda x: jnp.cumprod(x, 1),
    "cummax": lambda x: lax.cummax(x, 1),
    "logcumsumexp": lambda x: lax.cumlogsumexp(x, 1),
    "sort": lambda x: jnp.sort(x, 1),
    "argsort": lambda x: jnp.argsort(x, 1),
    "median": lambda x: jnp.median(x, 1),
    "quantile": lambda x: jnp.quantile(x, 0.3, 1),
    "topk": lambda x: lax.top_k(x, 2)[0],
    "approx_max_k": lambda x: lax.approx_max_k(x, 2)[0],
    "searchsorted": lambda x: jnp.searchsorted(jnp.arange(4.0), x),
    "digitize": lambda x: jnp.digitize(x, jnp.arange(4.0)),
    "fft": lambda x: jnp.fft.fft(x, axis=1).real,
    "rfft2": lambda x: jnp.abs(jnp.fft.rfft2(x)),
    "conv": lambda x: lax.conv(x[:, None], jnp.ones((1, 1, 2, 2)), (1, 1), "SAME"),
    "reduce_window":
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2), (1, 1, 1), "VALID"),
    "avg_pool": lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2, 2), (1, 2, 2), "VALID"),
    "select_and_scatter":
        jax.grad(
            lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2), (1, 1, 1), "VALID").sum()
        ),
    "erf": jax.scipy.special.erf,
    "erfinv": lambda x: jax.scipy.special.erfinv(x * 0.1),
    "gammaln": jax.scipy.special.gammaln,
    "digamma": jax.scipy.special.digamma,
    "betainc": lambda x: jax.scipy.special.betainc(1.0, 2.0, x * 0.1),
    "i0": jax.scipy.special.i0,
    "i1e": jax.scipy.special.i1e,
    "gammainc": lambda x: jax.scipy.special.gammainc(1.0, x),
    "zeta": lambda x: jax.scipy.special.zeta(x + 2, 1.0),
    "polygamma": lambda x: jax.scipy.special.polygamma(1, x),
    "lgamma": lambda x: lax.lgamma(x),
    "igamma": lambda x: lax.igamma(x, x),
    "random_gamma": lambda x: jax.random.gamma(KEY, x),
    "nextafter": lambda x: jnp.nextafter(x, 0.0),
    "clz": lambda x: lax.clz(x.astype(int)),
    "popcount": lambda x: lax.population_count(x.astype(int)),
    "bitcast": lambda x: lax.bitcast_convert_type(x, jnp.int32),
    "reduce_precision": lambda x: lax.reduce_precision(x, 8, 7),
    "rng_bit": lambda x: x + jax.random.bits(KEY, (4,)).sum(),
    "categorical": lambda x: jax.random.categorical(KEY, x),
    "permutation": lambda x: jax.random.permutation(KEY, x, axis=1),
    "poisson": lambda x: jax.random.poisson(KEY, 2.0, x.shape),
    "choice": lambda x: jax.random.choice(KEY, x[0, 0], (2,)),
    "truncated_normal": lambda x: jax.random.truncated_normal(KEY, -1.0, 1.0, x.shape) + x,
    "cbrt": jnp.cbrt,
    "expm1": jnp.expm1,
    "logaddexp": lambda x: jnp.logaddexp(x, 1.0),
    "hypot": lambda x: jnp.hypot(x, x),
    "atan2": lambda x: jnp.arctan2(x, x),
    "sinc": jnp.sinc,
    "tan": jnp.tan,
    "asinh": jnp.arcsinh,
    "tril": jnp.tril,
    "roll": lambda x: jnp.roll(x, 1, 1),
    "rot90": lambda x: jnp.rot90(x, axes=(1, 2)),
    "flip": lambda x: x[:, ::-1],
    "pad": lambda x: jnp.pad(x, ((0, 0), (1, 1), (0, 0)), "reflect"),
    "tile": lambda x: jnp.tile(x, (1, 2, 1)),
    "kron": lambda x: jax.vmap(lambda a: jnp.kron(a, a))(x),
    "einsum": lambda x: jnp.einsum("bij,bkj->bik", x, x),
    "tensordot": lambda x: jnp.tensordot(x, jnp.ones((4, 4)), 1),
    "take": lambda x: jnp.take(x, jnp.array([1, 0]), 1),
    "scatter_mul": lambda x: x.at[:, 0].multiply(2.0),
    "scatter_min": lambda x: x.at[:, 0].min(0.0),
    "scatter_max": lambda x: x.at[:, 0].max(0.0),
    "scatter_apply": lambda x: x.at[:, 0].apply(jnp.tanh),
    "segment_sum": lambda x: jax.ops.segment_sum(x[0], jnp.array([0, 1, 0, 1]), 2),
    "argmax": lambda x: jnp.argmax(x, 1),
    "argmin": lambda x: jnp.argmin(x, 1),
    "clip": lambda x: jnp.clip(x, 0, 1),
    "nan_to_num": jnp.nan_to_num,
    "where": lambda x: jnp.where(x > 1, x, 0),
    "map": lambda x: lax.map(jnp.tanh, x),
    "associative_scan": lambda x: lax.associative_scan(jnp.add, x, axis=1),
    "fori": lambda x: lax.fori_loop(0, 3, lambda i, c: c * 1.1, x),
    "switch": lambda x: lax.switch(1, [jnp.sin, jnp.cos, jnp.tan], x),
    "custom_root": lambda x: lax.custom_root(lambda y: y - x, x, lambda f, y: y, lambda g, y: y),
    "cg":
        lambda x: jax.vmap(
            lambda a: jax.scipy.sparse.linalg.cg(a @ a.T, jnp.ones(4), maxiter=2)[0]
        )(x),
    "convolve": lambda x: jax.vmap(jax.vmap(lambda a: jnp.convolve(a, jnp.ones(2), "same")))(x),
    "interp": lambda x: jnp.interp(x, jnp.arange(4.0), jnp.arange(4.0)),
    "polyval": lambda x: jnp.polyval(jnp.ones(3), x),
    "dot_product_attention":
        lambda x: jax.nn.dot_product_attention(x[:, :, None], x[:, :, None], x[:, :, None]),
    "one_hot": lambda x: jax.nn.one_hot(x.astype(int)[..., 0], 4),
    "resize": lambda x: jax.image.resize(x, (x.shape[0], 8, 8), "bilinear"),
    "tridiagonal_solve": lambda x: lax.linalg.tridiagonal_solve(x[:, 0], x[:, 1] + 3, x[:, 2], x),
    "hessenberg": lambda x: lax.linalg.hessenberg(x)[0],
    "householder": lambda x: lax.linalg.householder_product(x, x[:, 0]),
    "eig": lambda x: jnp.abs(lax.linalg.eig(x)[0]),
    "ragged_dot": lambda x: lax.ragged_dot(x[0], jnp.ones((2, 4, 3)), jnp.array([2, 2], jnp.int32)),
    "optimization_barrier": lambda x: lax.optimization_barrier(x),
    "stop": lax.stop_gradient,
    "split": lambda x: jnp.split(x, 2, 1)[0],
    "mod": lambda x: x % 2,
    "round": jnp.round,
    "sign": jnp.sign,
    "floor": jnp.floor,
    "isfinite": jnp.isfinite,
    "complex": lambda x: jnp.real(x * 1j),
    "conj": lambda x: jnp.conj(x + 1j).real,
    "dynamic_update": lambda x: lax.dynamic_update_slice(x, x[:, :1], (0, 1, 0)),
    "rev": lambda x: lax.rev(x, (1,)),
    "iota": lambda x: x + jnp.arange(4.0),
    "bfloat16": lambda x: x.astype(jnp.bfloat16),
    "clamp": lambda x: lax.clamp(0.0, x, 1.0),
    "square": jnp.square,
    "equal_to_max": lambda x: x == x.max(1, keepdims=True),
}
# fmt: on
# Each rank draws the same numbers, which are returned as blocks or belong to rows of its own.
_MISTAKES = {"poisson", "random_gamma", "categorical", "truncated_normal"}
_NOT_DERIVED = (NotImplementedError, TypeError)  # by JAX


@pytest.mark.parametrize("name", [f"{one}{word}" for one in FUNCTIONS for word in ("", " grad")])
def test_function(name):
    function = FUNCTIONS[name.removesuffix(" grad")]
    mesh = Mesh(np.array(jax.devices()[:2]), ("dp",))
    mapped = jax.shard_map(lambda x: function(x), mesh=mesh, in_specs=P("dp"), out_specs=P("dp"),
                           check_vma=False)  # fmt: skip
    called = mapped
    if name.endswith(" grad"):
        called = jax.grad(lambda x: jnp.sum(jnp.real(mapped(x)).astype(float)))
    batch = 2 * jnp.eye(4)[None].repeat(4, 0) + 0.1
    try:
        found = lint(called, batch)
    except _NOT_DERIVED as error:
        if not name.endswith(" grad"):
            raise
        pytest.skip(str(error)[:80])
    if name.removesuffix(" grad") in _MISTAKES:
        assert found
    else:
        assert [one["message"] for one in found] == []
