"""Operations on explicit axes, with every sharding of their operands: JAX's types are the
checker's."""

import itertools
import os
import subprocess

import jax
import jax.numpy as jnp
import of_one_jax  # noqa: F401  what is inferred is of one version
from jax import lax
from jax._src.core import ShardingTypeError
from jax.sharding import NamedSharding, reshard
from jax.sharding import PartitionSpec as P

from spmd_trace.jax import Unrecordable, dumps, record, record_gradients
from spmd_trace.jax.conformance import comparison, verdicts
from spmd_trace.jax.programs import mesh
from test_programs import needs_checker

SPECS = [P(), P("dp"), P(None, "tp"), P("dp", "tp"), P(("dp", "tp")), P("tp", "dp")]
UNARY = {
    "sin": jnp.sin,
    "transpose": jnp.transpose,
    "sum": lambda x: jnp.sum(x, 0),
    "mean": lambda x: jnp.mean(x, 1),
    "sum of all": jnp.sum,
    "max": lambda x: jnp.max(x, 1),
    "softmax": lambda x: jax.nn.softmax(x, -1),
    "argmax": lambda x: jnp.argmax(x, 1).astype(jnp.float32),
    "expand": lambda x: x[:, None, :],
    "convert": lambda x: x.astype(jnp.bfloat16),
    "times a number": lambda x: x * 2.0,
    "cumsum": lambda x: lax.cumsum(x, 1),
    "reshard": lambda x: reshard(x, P("tp", None)),
    "relu": jax.nn.relu,
    "pad": lambda x: jnp.pad(x, ((0, 0), (0, 8))),
    "slice": lambda x: x[:, :8],
}
BINARY = {
    "add": jnp.add,
    "mul": jnp.multiply,
    "dot": lambda x, y: x @ y.T,
    "dot to replicated": lambda x, y: jnp.einsum("ij,kj->ik", x, y, out_sharding=P(None, None)),
    "where": lambda x, y: jnp.where(x > 0, x, y),
    "concatenate": lambda x, y: jnp.concatenate([x, y], 0),
}


def recordings():
    """Names and programs of what JAX accepts, and how many it or the recorder refuses."""
    found, refused = [], {"JAX": 0, "recorder": 0}
    for count, cases in ((1, UNARY), (2, BINARY)):
        for (name, function), specs, gradients in itertools.product(
            cases.items(), itertools.product(SPECS, repeat=count), (False, True)
        ):
            arguments = [
                jax.ShapeDtypeStruct((16, 16), jnp.float32, sharding=NamedSharding(mesh(), spec))
                for spec in specs
            ]
            try:
                with jax.sharding.use_abstract_mesh(mesh()):
                    jax.make_jaxpr(function)(*arguments)
            except Exception:  # JAX has many words for no
                refused["JAX"] += 1
                continue
            try:
                found.append((f"{name} {specs}", _recorded(function, arguments, gradients)))
            except (Unrecordable, ShardingTypeError):  # the latter is about gradients alone
                refused["recorder"] += 1
    return found, refused


def _recorded(function, arguments, gradients: bool):
    if not gradients:
        return record(function, *arguments, mesh=mesh())

    def total(*values):
        return jnp.sum(function(*values).astype(jnp.float32))

    argnums = tuple(range(len(arguments)))
    return record_gradients(total, *arguments, mesh=mesh(), argnums=argnums)


@needs_checker
def test_types_are_those_of_jax_and_data_uphold_them(tmp_path):
    found, refused = recordings()
    judged = verdicts.judged([dumps(program) for _, program in found], os.environ["SPMDLINT"])
    differ = [
        difference
        for (name, program), verdict in zip(found, judged)
        for difference in comparison.differences(name, program, None, verdict)
    ]
    assert not differ
    if runner := os.environ.get("SPMDRUN"):
        path = tmp_path / "program.spmd.json"
        for name, program in found:
            path.write_text(dumps(program), encoding="utf-8")
            command = [runner, "--check=all", "--isolated", str(path)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, name + done.stdout + done.stderr
    assert len(found) >= 250 and refused["JAX"] >= 50 and refused["recorder"] < len(found) / 2
