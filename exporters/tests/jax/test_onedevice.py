"""`--confirm`: calls on all devices against the same calls on one."""

import ast
import json
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P
from test_script import linted

from spmd_trace.jax import lint
from spmd_trace import meshnumbers
from spmd_trace.jax.runs import doubts

needs_checker = pytest.mark.skipif(
    "SPMDLINT" not in os.environ, reason="SPMDLINT does not name a checker"
)

# A ring of blocks in which each rank weighs what it gets by the place of whom it is from.
RING = """
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P

RANKS = 4
mesh = Mesh(np.array(jax.devices()[:RANKS]), ("sp",))
ring = [(i, (i + 1) % RANKS) for i in range(RANKS)]

def loss(w, x):
    here, own = x.shape[0], lax.axis_index("sp")
    places = jnp.arange(here * RANKS, dtype=jnp.float32)
    total, block = jnp.zeros(x.shape[1]), x
    for turn in range(RANKS):
        source = (own - turn) % RANKS
        weights = lax.dynamic_slice_in_dim(places, source * here, here)
        total = total + weights @ block
        block = lax.ppermute(block, "sp", ring)
    return lax.psum(jnp.sum((x @ w - total @ w) ** 2), "sp") / (here * RANKS)

@jax.jit
def step(w, x):
    value, gradient = jax.value_and_grad(
        jax.shard_map(loss, mesh=mesh, in_specs=(P(), P("sp")), out_specs=P(), check_vma=False)
    )(w, x)
    return w - 0.001 * gradient, value

k = jax.random.split(jax.random.key(0), 2)
step(jax.random.normal(k[0], (3, 2)), jax.random.normal(k[1], (8, 3)))
"""


@needs_checker
def test_a_script_whose_numbers_are_those_of_its_mesh(tmp_path):
    done = linted(tmp_path, RING, "--confirm")
    assert done.returncode == 0, done.stdout
    assert "1 of 1 functions were compared with one device" in done.stderr


@needs_checker
@pytest.mark.parametrize(
    "was, now",
    [("(own - turn)", "(own + turn)"), ("(i, (i + 1) % RANKS)", "((i + 1) % RANKS, i)")],
)
def test_a_ring_that_turns_the_other_way(was, now, tmp_path):
    assert RING.count(was) == 1
    wrong = RING.replace(was, now)
    assert linted(tmp_path, wrong).returncode == 0, "its types are right"
    done = linted(tmp_path, wrong, "--confirm")
    line = 1 + wrong[: wrong.index("@jax.jit")].count("\n")
    assert done.returncode == 1
    assert f"train.py:{line}: error[unlike-one-device]: result[1], change of w: not" in done.stdout


# An expert takes four rows of each rank, and no more.
ROUTED = """
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P

RANKS = 4
mesh = Mesh(np.array(jax.devices()[:RANKS]), ("ep",))

def body(router, w, x):
    hot = jax.nn.one_hot(jnp.argmax(x @ router, 1), 8)
    place = jnp.sum((jnp.cumsum(hot, 0) - 1) * hot, 1).astype(jnp.int32)
    slots = jax.nn.one_hot(place, 4)[:, None] * hot[:, :, None]
    rows = jnp.einsum("tec,td->ecd", slots, x)
    rows = lax.all_to_all(rows, "ep", 0, 1, tiled=True)
    rows = jnp.tanh(jnp.einsum("ecd,edf->ecf", rows, w))
    rows = lax.all_to_all(rows, "ep", 1, 0, tiled=True)
    return x + jnp.einsum("tec,ecd->td", slots, rows)

layer = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=(P(), P("ep"), P("ep")),
                              out_specs=P("ep"), check_vma=False))
k = jax.random.split(jax.random.key(0), 3)
layer(jax.random.normal(k[0], (3, 8)), jax.random.normal(k[1], (8, 3, 3)),
      jax.random.normal(k[2], (64, 3)))
"""


@needs_checker
def test_a_capacity_of_each_rank(tmp_path):
    done = linted(tmp_path, ROUTED, "--confirm")
    assert done.returncode == 0, done.stdout
    assert "1 of 1 functions were compared with one device" in done.stderr


@needs_checker
def test_rows_that_do_not_come_back(tmp_path):
    was = 'lax.all_to_all(rows, "ep", 1, 0, tiled=True)'
    assert ROUTED.count(was) == 1
    wrong = ROUTED.replace(was, "rows.reshape(8, 4, 3)")
    assert "unlike-one-device" in linted(tmp_path, wrong, "--confirm").stdout


def _mapped(body, *specs):
    mesh = Mesh(np.array(jax.devices()[:4]), ("dp",))
    return jax.shard_map(body, mesh=mesh, in_specs=specs, out_specs=P(), check_vma=False)


@needs_checker
def test_the_factor():
    loss = _mapped(lambda w, x: lax.psum(jnp.mean((x @ w) ** 2), "dp"), P(), P("dp"))
    arguments = jnp.arange(1.0, 4.0), jax.random.normal(jax.random.key(1), (8, 3))
    found = lint(loss, *arguments, confirm=True)
    (one,) = [row for row in found if row["name"] == "unlike-one-device"]
    assert one["message"] == "result: 4 times what one device makes of the same data"
    right = _mapped(lambda w, x: lax.pmean(jnp.mean((x @ w) ** 2), "dp"), P(), P("dp"))
    assert lint(right, *arguments, confirm=True) == []
    assert lint(right, *arguments) == [], "a function that is not jitted may be called again"
    assert np.isfinite(right(*arguments))


@needs_checker
@pytest.mark.parametrize("draw", ["axis_index", "shape"])
def test_what_ranks_draw_for_themselves_is_not_compared(draw):
    def body(x):
        key = jax.random.key(0)
        if draw == "axis_index":
            key = jax.random.fold_in(key, lax.axis_index("dp"))
        return lax.pmean(jnp.mean(x * jax.random.normal(key, x.shape)), "dp")

    x = jax.random.normal(jax.random.key(1), (8, 3))
    with pytest.warns(UserWarning, match="each rank draws random numbers of its own"):
        found = lint(_mapped(body, P("dp")), x, confirm=True)
    assert "unlike-one-device" not in {one["name"] for one in found}


@needs_checker
def test_what_each_rank_has_one_of_is_not_compared():
    weights = jax.random.normal(jax.random.key(0), (4, 3))
    body = lambda w: lax.psum(jnp.sum(jnp.tanh(w[0])), "dp")  # noqa: E731
    with pytest.warns(UserWarning, match="one device has several of what each rank has one of"):
        assert lint(_mapped(body, P("dp")), weights, confirm=True) == []


@needs_checker
def test_a_number_that_may_be_one_of_ranks():
    x = jax.random.normal(jax.random.key(1), (8, 3))
    body = lambda x: lax.psum(jnp.mean(jnp.exp(x)), "dp") / 4  # noqa: E731
    with pytest.warns(UserWarning, match="4 in it may be a number of ranks"):
        assert lint(_mapped(body, P("dp")), x, confirm=True) == []


def test_slices_that_reach_all_of_a_block():
    spec = (P("dp"),)
    halo = _mapped(lambda x: lax.psum(jnp.sum(x[:1]) + jnp.sum(x[1:]), "dp"), *spec)
    first = _mapped(lambda x: lax.psum(jnp.sum(x[:1]), "dp"), *spec)
    x = jnp.ones((8, 3))
    assert not doubts.unused_blocks(jax.make_jaxpr(halo)(x).jaxpr)
    assert doubts.unused_blocks(jax.make_jaxpr(first)(x).jaxpr)


NUMBERS = """
import argparse, dataclasses
@dataclasses.dataclass
class Config:
    tensor: int = 4
    hidden: int = 4
DATA, ROWS = 2, 4
SIZES = {"pipe": 2, "layers": 2}
def run(micro, expert=2, *, context=2):
    return Mesh(grid.reshape(DATA, config.tensor, SIZES["pipe"], expert, context, replicas), "abcdef")
parser = argparse.ArgumentParser()
parser.add_argument("--replicas", type=int, default=2)
parser.add_argument("--steps", type=int, default=2)
replicas = options.replicas
run(4, 2, context=2)
Config(tensor=8)
"""


def test_numbers_of_meshes():
    tree, words = meshnumbers.for_one_device(
        NUMBERS, ["--replicas", "2", "--steps=2", "--replicas=4"]
    )
    assert words == ["--replicas", "1", "--steps=2", "--replicas=1"]
    expected = NUMBERS
    for was, now in [
        ("tensor: int = 4", "tensor: int = 1"), ("DATA, ROWS = 2, 4", "DATA, ROWS = 1, 4"),
        ('"pipe": 2', '"pipe": 1'), ("expert=2, *, context=2", "expert=1, *, context=1"),
        ('"--replicas", type=int, default=2', '"--replicas", type=int, default=1'),
        ("run(4, 2, context=2)", "run(4, 1, context=1)"), ("Config(tensor=8)", "Config(tensor=1)"),
    ]:  # fmt: skip
        assert expected.count(was) == 1, was
        expected = expected.replace(was, now)
    assert ast.unparse(tree) == ast.unparse(ast.parse(expected))


def test_numbers_of_a_mesh_by_shape():
    tree, _ = meshnumbers.for_one_device("N = 8\nmesh = jax.make_mesh((N,), ('x',))\nM = 8", [])
    assert json.dumps([node.value.value for node in (tree.body[0], tree.body[2])]) == "[1, 8]"


def test_numbers_of_pairs_of_ranks():
    source = """
N, LENGTH, HALVES, TURNS = 8, 8, 2, 8
right = [(i, i + 1) for i in range(N - 1)]
y = lax.ppermute(x[:LENGTH], "x", right)
z = lax.ppermute(y, "x", perm=[(j, (j + HALVES) % TURNS) for j in range(TURNS)])
"""
    tree, _ = meshnumbers.for_one_device(source, [])
    assert ast.unparse(tree.body[0]) == "N, LENGTH, HALVES, TURNS = (1, 8, 2, 1)"


def test_numbers_of_devices():
    source = """
N, M, K = int(os.environ.get("N", "8")), 4, 4
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={N}"
jax.config.update("jax_num_cpu_devices", M)
"""
    tree, _ = meshnumbers.for_one_device(source, [])
    assert ast.unparse(tree.body[0]) == "N, M, K = (int(os.environ.get('N', '1')), 1, 4)"


# What is right for the rows of the first call alone: a batch that two devices have less of.
SHAPES = """
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()[:4]), ("dp",))

def mean(x):
    rows = 8 if x.shape[0] == 2 else x.shape[0]
    return lax.psum(jnp.sum(jnp.exp(x)), "dp") / (rows * 3)

mean = jax.jit(jax.shard_map(mean, mesh=mesh, in_specs=P("dp"), out_specs=P(), check_vma=False))
for rows in ROWS:
    mean(jax.random.normal(jax.random.key(rows), (rows, 3)))
"""


@needs_checker
def test_calls_with_other_shapes(tmp_path):
    once = linted(tmp_path, SHAPES.replace("ROWS", "8, 8"), "--confirm")
    assert "1 of 1 functions were compared" in once.stderr
    twice = linted(tmp_path, SHAPES.replace("ROWS", "8, 16"), "--confirm")
    assert "2 of 2 functions were compared" in twice.stderr
    assert "unlike-one-device" in twice.stdout and "unlike-one-device" not in once.stdout
    many = linted(tmp_path, SHAPES.replace("ROWS", "4, 8, 12, 16, 20, 24"))
    assert "it is called with many shapes of arguments" in many.stderr


# Asks XLA for devices itself; the moments are one vector, as long as the ranks can divide.
FLAT = """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, PartitionSpec as P

ROWS, COLUMNS = 2, 2
RANKS = ROWS * COLUMNS
mesh = Mesh(np.array(jax.devices()).reshape(ROWS, COLUMNS), ("a", "b"))
AXES = ("a", "b")

def body(w, moments, x, y):
    gradient, shapes = ravel_pytree(jax.grad(lambda w: jnp.mean((x @ w - y) ** 2))(w))
    count = gradient.size
    padded = jnp.pad(gradient, (0, -count % RANKS))
    moments = 0.9 * moments + lax.psum_scatter(padded, AXES, tiled=True) / RANKS
    change = lax.all_gather(moments, AXES, tiled=True)[:count]
    return jax.tree.map(lambda one, by: one - 0.1 * by, w, shapes(change)), moments

step = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=(P(), P(AXES), P(AXES), P(AXES)),
                             out_specs=(P(), P(AXES)), check_vma=False))
state = np.random.default_rng(0)
x = state.standard_normal((8, 5)).astype(np.float32)
w, moments = jnp.ones(5), np.zeros(5 + -5 % RANKS, np.float32)
for _ in range(2):
    w, moments = step(w, moments, x, x.sum(1) ** 2)
"""


@needs_checker
def test_moments_that_are_padded(tmp_path):
    done = linted(tmp_path, FLAT, "--confirm")
    assert "1 of 1 functions were compared with one device" in done.stderr
    assert done.returncode == 0, done.stdout
    wrong = FLAT.replace("(0, -count % RANKS)", "(-count % RANKS, 0)")
    assert wrong != FLAT
    assert "unlike-one-device" in linted(tmp_path, wrong, "--confirm").stdout


# A graph whose edges each rank has for its own nodes, numbered from its first one.
GRAPH = """
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P

PARTS, NODES, EDGES = 4, 16, 60
mesh = Mesh(np.array(jax.devices()[:PARTS]), ("parts",))
state = np.random.default_rng(0)
x = state.standard_normal((NODES, 3)).astype(np.float32)
ends = state.integers(0, NODES, (2, EDGES))
own = NODES // PARTS
groups = [np.flatnonzero(ends[1] // own == part) for part in range(PARTS)]
width = max(map(len, groups))
source, target = np.zeros((2, PARTS, width), int)
there = np.zeros((PARTS, width), np.float32)
for part, edges in enumerate(groups):
    source[part, :len(edges)] = ends[0, edges]
    target[part, :len(edges)] = ends[1, edges] - part * own
    there[part, :len(edges)] = 1

def loss(w, x, source, target, there):
    sent = lax.all_gather(x, "parts", tiled=True)[source] * there[:, None]
    y = jax.ops.segment_sum(sent, target, x.shape[0]) @ w
    return SUM(jnp.sum(y ** 2), "parts")

loss = jax.shard_map(loss, mesh=mesh, in_specs=(P(), *[P("parts")] * 4), out_specs=P(),
                     check_vma=False)
step = jax.jit(jax.value_and_grad(loss), donate_argnums=(0, 2))
step(jnp.ones((3, 2)), x, source.ravel(), target.ravel(), there.ravel())
"""


@needs_checker
@pytest.mark.parametrize("sums", [True, False])
def test_rows_that_a_script_sorts_by_rank(sums, tmp_path):
    script = GRAPH.replace("SUM", "lax.psum" if sums else "lax.pmean")
    done = linted(tmp_path, script, "--confirm")
    assert "1 of 1 functions were compared with one device" in done.stderr
    assert ("unlike-one-device" in done.stdout) != sums, done.stdout
