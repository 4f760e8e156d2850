"""Whole programs, forward and with their gradients: JAX's types are the checker's."""

import functools
import os
import subprocess

import of_one_jax  # noqa: F401  what is inferred is of one version
import pytest

from spmd_trace.jax.conformance import comparison, verdicts
from spmd_trace.jax import dumps, record, record_gradients
from spmd_trace.jax.programs import PROGRAMS

needs_checker = pytest.mark.skipif(
    "SPMDLINT" not in os.environ, reason="SPMDLINT does not name a checker"
)

needs_runner = pytest.mark.skipif("SPMDRUN" not in os.environ, reason="SPMDRUN names no runner")


@functools.cache
def recorded(name: str, gradients: bool):
    program = PROGRAMS[name]
    function, arguments = program.callable(), program.arguments()
    if not gradients:
        return record(function, *arguments, mesh=program.mesh)
    argnums = program.differentiated()
    return record_gradients(function, *arguments, mesh=program.mesh, argnums=argnums)


# JAX accepts these; what is wrong with them is explained in the table of the README.
REFUSED = {
    "branch_by_rank": {"collective-under-varying-control"},
    "moe_sorted": {"wrong-source"},
}
REFUSED_BACKWARD = {"branch_by_rank": {"varying-choice"}}
OTHER_TYPES = {"moe_sorted": {"sort: I, V"}}


@needs_checker
@pytest.mark.parametrize("gradients", [False, True], ids=["forward", "gradients"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_types_are_those_of_jax(name, gradients):
    program = recorded(name, gradients)
    (verdict,) = verdicts.judged([dumps(program)], os.environ["SPMDLINT"])
    refused = REFUSED.get(name, set()) | (REFUSED_BACKWARD.get(name, set()) if gradients else set())
    assert set(verdict.findings) == refused
    found = comparison.differences(name, program, None, verdict)
    assert {one.sign for one in found if one.kind == "c"} == OTHER_TYPES.get(name, set())
    assert comparison.compared_values(program) >= 4


@needs_runner
@pytest.mark.parametrize("gradients", [False, True], ids=["forward", "gradients"])
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in REFUSED])
def test_simulated_ranks_uphold_the_types(name, gradients, tmp_path):
    """Every value of every rank, in backward too, against the same program on one device."""
    path = tmp_path / "program.spmd.json"
    path.write_text(dumps(recorded(name, gradients)), encoding="utf-8")
    command = [os.environ["SPMDRUN"], "--check=all", "--isolated", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
