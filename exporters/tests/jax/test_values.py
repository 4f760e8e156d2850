"""spmdrun and JAX on eight devices compute the same: the loss of a whole program, and its
gradients, of the same inputs."""

import dataclasses
import json
import os
import subprocess

import jax
import numpy as np
import of_one_jax  # noqa: F401  what is inferred is of one version
import pytest
from jax._src import shard_map
from jax.sharding import NamedSharding
from test_programs import REFUSED, recorded

from spmd_trace.jax import dumps
from spmd_trace.jax.document import Op
from spmd_trace.jax.programs import PROGRAMS

NOT_COMPARED = {
    "dropout": "both draw numbers of their own",
    "reduced_argument": "JAX cannot place an argument whose gradient is unreduced",
}
NAMES = [name for name in PROGRAMS if name not in REFUSED and name not in NOT_COMPARED]
SAMPLE = NAMES if os.environ.get("SPMD_TEST_ALL") else NAMES[::8]

needs_runner = pytest.mark.skipif("SPMDRUN" not in os.environ, reason="SPMDRUN names no runner")


def with_results_last(program):
    """The same program, its results made once more at the end."""
    ends = [dataclasses.replace(one["value"], grad_of=None) for one in program.outputs]
    ops = [
        Op("mul", [one["value"], 1.0], [end], expected=False)
        for one, end in zip(program.outputs, ends)
    ]
    main = dataclasses.replace(program.main, ops=[*program.main.ops, *ops])
    return dataclasses.replace(program, main=main, outputs=[{"value": end} for end in ends])


def by_spmdrun(name: str, folder) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The inputs that it draws, whole, and its results."""
    program = with_results_last(recorded(name, True))
    path = folder / "program.spmd.json"
    path.write_text(dumps(program), encoding="utf-8")
    command = [os.environ["SPMDRUN"], "--isolated", "--tier=real", "--check=off", "--no-backward"]
    done = subprocess.run(
        [*command, f"--trace-out={folder}", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    values = json.loads((folder / "index.json").read_text())["values"]
    inputs, results = values[: len(program.main.params)], values[-len(program.outputs) :]
    return tuple([np.load(folder / one["file"]) for one in side] for side in (inputs, results))


@needs_runner
@pytest.mark.parametrize("name", SAMPLE)
def test_values_and_gradients(name, tmp_path, monkeypatch):
    program = PROGRAMS[name]
    inputs, results = by_spmdrun(name, tmp_path)
    mesh = program.mesh
    devices = jax.make_mesh(mesh.axis_sizes, mesh.axis_names, axis_types=mesh.axis_types)
    arguments = [
        (
            jax.device_put(given, NamedSharding(devices, one.sharding.spec))
            if getattr(one, "sharding", None)
            else given
        )
        for given, one in zip(inputs, program.arguments())
    ]
    checks = shard_map._shmap_checks
    # Programs name a mesh without devices.
    monkeypatch.setattr(shard_map, "_shmap_checks", lambda _, *more: checks(devices, *more))
    with jax.set_mesh(devices):
        function = jax.jit(jax.value_and_grad(program.callable(), program.differentiated()))
        expected = jax.tree.leaves(function(*arguments))
    assert len(results) == len(expected)
    for found, right in zip(results, expected):
        right = np.asarray(right, np.float64)
        apart = np.abs(found.astype(np.float64) - right).max() / max(np.abs(right).max(), 1.0)
        assert apart < 1e-5, f"{apart} of the largest element, or of 1"
