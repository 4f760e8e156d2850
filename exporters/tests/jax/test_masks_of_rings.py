"""Positions of a block that has gone round, which a rank counts from the turn of a loop."""

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

RANKS, ROWS = 4, 6


def attention(turns: int, owner):
    """Causal attention to the keys of all ranks, `turns` of which a rank sees; `owner`: whose they
    are in a turn."""

    def body(q, k, v):
        rank = lax.axis_index("sp")
        rows = rank * ROWS + jnp.arange(ROWS)
        ring = [(i, (i + 1) % RANKS) for i in range(RANKS)]

        def visit(carry, turn):
            total, weight, k, v = carry
            columns = owner(rank, turn) * ROWS + jnp.arange(ROWS)
            scores = jnp.where(rows[:, None] >= columns[None, :], q @ k.T, -1e30)
            weights = jnp.exp(scores)
            total, weight = total + weights @ v, weight + weights.sum(1, keepdims=True)
            return (total, weight, *lax.ppermute((k, v), "sp", ring)), None

        start = jnp.zeros_like(q), jnp.zeros((ROWS, 1))
        (total, weight, _, _), _ = lax.scan(visit, (*start, k, v), jnp.arange(turns))
        return total / weight

    mesh = Mesh(np.array(jax.devices()[:RANKS]), ("sp",))
    return jax.shard_map(body, mesh=mesh, in_specs=P("sp"), out_specs=P("sp"), check_vma=False)


def found(function) -> set[str]:
    x = jnp.ones((RANKS * ROWS, 8))
    return {one["name"] for one in lint(jax.jit(function), x, x, x)}


@pytest.mark.parametrize(
    "owner",
    [
        lambda rank, turn: (rank - turn) % RANKS,
        lambda rank, turn: (rank + RANKS - turn) % RANKS,
        lambda rank, turn: jnp.where(rank >= turn, rank - turn, rank - turn + RANKS),
    ],
)
def test_a_mask_of_the_block_that_is_there(owner):
    assert found(attention(RANKS, owner)) == set()


def test_a_mask_of_another_block():
    assert "mixed-blocks" in found(attention(RANKS, lambda rank, turn: (rank + turn) % RANKS))


def test_a_turn_too_few():
    function = attention(RANKS - 1, lambda rank, turn: (rank - turn) % RANKS)
    assert "missing-block" in found(function)
