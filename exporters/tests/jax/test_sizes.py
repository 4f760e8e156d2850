"""Which numbers are sizes: what a program asks while it is traced tells the same as to trace it
again with other sizes."""

import contextlib
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import script_programs
import unchecked_programs
from jax import lax
from jax._src import core
from jax.sharding import AbstractMesh, PartitionSpec as P

from spmd_trace.jax import lint
from spmd_trace.jax.numbers import sizes
from spmd_trace.jax.numbers.asked import watched
from spmd_trace.jax.versions import use_abstract_mesh

MESH = AbstractMesh((2, 4), ("dp", "tp"))


def _rows(x):
    return x.shape[0]


# fmt: off
NUMBERS = {
    "extent": lambda x: x / x.shape[0],
    "extent of what is whole": lambda x: x / x.shape[2],
    "root": lambda x: x / np.sqrt(x.shape[0]),
    "part": lambda x: x * (0.1 / _rows(x)),
    "product": lambda x: x / (x.shape[0] * x.shape[2]),
    "difference": lambda x: x / (x.shape[0] - 1),
    "elements": lambda x: x / x.size,
    "length": lambda x: x / len(x),
    "jnp.shape": lambda x: x / jnp.shape(x)[1],
    "np.size": lambda x: x / np.size(x),
    "stated": lambda x: x / jax.eval_shape(jnp.tanh, x).shape[0],
    "axis": lambda x: x / lax.axis_size("dp"),
    "axes": lambda x: x * lax.axis_size(("dp", "tp")),
    "sum of ones": lambda x: x / lax.psum(1, "tp"),
    "sum of a number": lambda x: x / lax.psum(1.0, "tp"),
    "of the mesh": lambda x: x / jax.sharding.get_abstract_mesh().shape["dp"],
    "inside": lambda x: jax.jit(lambda y: y / y.shape[0])(x),
    "converted": lambda x: jnp.float32(x.shape[0]) * x,
    "chosen": lambda x: jnp.where(x > 1, x.shape[0], x),
    "mean": lambda x: x - x.mean(0),
    "mean of what is whole": lambda x: x - x.mean(2, keepdims=True),
    "variance": lambda x: x / x.var((0, 1), ddof=1),
    "mean of a slice": lambda x: x - x[:2].mean(0),
    "mean of ones": lambda x: x - jnp.ones(x.shape[0]).mean(),
    "mean of a reshape": lambda x: x - x.reshape(2, -1, 8).mean((0, 1)),
    "mean of micro-batches": lambda x: x - x.reshape(2, -1, 8).mean(1)[:, None].mean(),
    "mean over ranks": lambda x: x - lax.pmean(x, ("dp", "tp")),
    "mean in a scan": lambda x: lax.scan(lambda c, r: (c, r - r.mean()), 0, x)[1],
    "gathered": lambda x: x - lax.all_gather(x, "dp", tiled=True).mean((0, 1)),
    "scattered": lambda x: x - lax.psum_scatter(x, "dp", scatter_dimension=2, tiled=True).mean(),
    "gradient": jax.grad(lambda x: jnp.sum(x * x) / x.shape[0]),
    "gradient of a mean": jax.grad(lambda x: jnp.mean(x * x)),
    "attention": lambda x: jax.nn.dot_product_attention(*[x[:, :, None]] * 3)[:, :, 0],
    # Two halves, and two ranks.
    "symmetric": lambda x: lax.pmean(jnp.linalg.cholesky(x[:, :4, :4]), "dp")[:, :1, :1] * x,
    "by rank":
        lambda x: x * (lax.axis_index("dp") * x.shape[0] + jnp.arange(x.shape[0]))[:, None, None],
}
# fmt: on


def _trace_of(body):
    mapped = jax.shard_map(body, mesh=MESH, in_specs=P("dp", "tp"), out_specs=P("dp", "tp"),
                           check_vma=False)  # fmt: skip

    def trace(mesh):
        with use_abstract_mesh(mesh):
            return jax.make_jaxpr(mapped)(jax.ShapeDtypeStruct((12, 16, 8), jnp.float32))

    return trace


def _noted(found: sizes.Sizes, closed) -> dict:
    """Of factors: the parts without sizes, and the powers."""
    factors = {id(eqn) for eqn in _equations(closed.jaxpr) if eqn.primitive.name in ("mul", "div")}
    return {place: (pytest.approx(one["base"]), {key: n for key, n in one["of"].items() if n})
            for place, one in found.powers.items() if place[0] in factors}  # fmt: skip


def _equations(jaxpr):
    for eqn in jaxpr.eqns:
        yield eqn
        for body in core.jaxprs_in_params(eqn.params):
            yield from _equations(body)


@pytest.mark.parametrize("name", NUMBERS)
def test_number(name):
    trace = _trace_of(NUMBERS[name])
    closed, asked = watched(lambda: trace(MESH))
    assert asked is not None
    found, again = (sizes.of_program(trace, closed, MESH, one) for one in (asked, None))
    assert _noted(found, closed) == _noted(again, closed)


def test_once(monkeypatch):
    """Plain training steps are traced once."""
    monkeypatch.setattr(sizes, "_trace_again", lambda *_: pytest.fail("it is traced again"))
    for name in ("extent", "product", "axis", "mean", "mean over ranks", "gradient of a mean",
                 "mean in a scan", "by rank"):  # fmt: skip
        trace = _trace_of(NUMBERS[name])
        closed, asked = watched(lambda: trace(MESH))
        sizes.of_program(trace, closed, MESH, asked)


def test_the_backward_of_a_division_divides_by_the_same_number():
    def body(x):
        loss, gradient = jax.value_and_grad(lambda y: jnp.sum(y * y) / 8)(x)
        return gradient + lax.psum(loss, ("dp", "tp"))

    trace = _trace_of(body)
    closed, asked = watched(lambda: trace(MESH))
    found = sizes.of_program(trace, closed, MESH, asked)
    eights = [eqn for eqn in _equations(closed.jaxpr)
              if eqn.primitive.name == "div" and sizes._number(eqn.invars[1]) == 8]  # fmt: skip
    noted = [found.powers.get((id(eqn), 1)) for eqn in eights]
    assert noted == [{"base": 1.0, "of": {"dp": 1, "tp": 1}}] * 2


def test_what_a_backward_needs_does_not_make_the_mesh_smaller():
    def loss(gain, x):
        return lax.pmean(jnp.sum(jnp.tanh(x * gain[None, None])), "dp")

    mesh = AbstractMesh((4,), ("dp",))
    mapped = jax.shard_map(loss, mesh=mesh, in_specs=(P(), P("dp")), out_specs=P(),
                           check_vma=False)  # fmt: skip
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((8,), (12, 1, 8))]
    with use_abstract_mesh(mesh):
        closed = jax.make_jaxpr(jax.grad(mapped, (0, 1)))(*shapes)
        thin = jax.make_jaxpr(mapped)(shapes[0], jax.ShapeDtypeStruct((4, 1, 8), jnp.float32))
    assert sizes.smaller(closed.jaxpr) == {}
    assert sizes.smaller(thin.jaxpr) == {"dp": 2}


@pytest.fixture
def both(monkeypatch):
    """Programs that are recorded both ways, of which what each notes."""
    pairs = []
    one_way = sizes.of_program

    def of_program(trace, closed, mesh, asked):
        found, again = (one_way(trace, closed, mesh, one) for one in (asked, None))
        pairs.append((_noted(found, closed), _noted(again, closed)))
        return found

    monkeypatch.setattr(sizes, "of_program", of_program)
    return pairs


@pytest.mark.parametrize("name", unchecked_programs.NAMES)
def test_program(name, both, tmp_path):
    unchecked_programs.recorded(name, tmp_path)
    assert both and all(found == again for found, again in both)


# With other sizes its modules do not fit its parameters.
SCRIPTS = [one for one in script_programs.NAMES if one != "linen_tensor_parallel"]


@pytest.mark.parametrize("name", SCRIPTS if os.environ.get("SPMD_TEST_ALL") else SCRIPTS[1::5])
def test_script(name, both, tmp_path):
    if script_programs.missing_libraries(name):
        pytest.skip("a library is not installed")
    with contextlib.suppress(AssertionError):
        script_programs.recorded(name, tmp_path)
    assert both and all(found == again for found, again in both)


_RANKS = 8
_STEP = 0.1


def _sharded_step(w, head, x):
    """Weights in rows on all ranks, gathered for use; of the head each rank has one column."""

    def loss(w, head):
        h = jnp.tanh(x @ lax.all_gather(w, "fsdp", axis=0, tiled=True))
        return jnp.mean((h @ lax.all_gather(head, "fsdp", axis=1, tiled=True)) ** 2)

    # The gather has summed them.
    own, of_head = (g / _RANKS for g in jax.grad(loss, argnums=(0, 1))(w, head))
    return w - _STEP * own, head - _STEP * of_head


@pytest.mark.skipif("SPMDLINT" not in os.environ, reason="SPMDLINT does not name a checker")
@pytest.mark.parametrize("ranks,expected", [(_RANKS, []), (_RANKS // 2, ["scale-mismatch"])])
def test_a_constant_is_the_size_of_an_axis_of_as_many_ranks(ranks, expected):
    """Where a rank has one column, half of the ranks are recorded: the constant is half as well."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:ranks]), ("fsdp",))
    specs = P("fsdp"), P(None, "fsdp"), P("fsdp")
    step = jax.shard_map(
        _sharded_step, mesh=mesh, in_specs=specs, out_specs=specs[:2], check_vma=False
    )
    found = lint(jax.jit(step), jnp.ones((8, 8)), jnp.ones((8, ranks)), jnp.ones((16, 8)))
    assert sorted({one["name"] for one in found}) == expected
