"""What a recording contains: the format, locations, bodies, types, and what is refused."""

import json
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import jsonschema
import of_one_jax  # noqa: F401  what is inferred is of one version
import pytest
from jax import lax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from spmd_trace.jax import Local, Unrecordable, document, dumps, examples, record, record_local
from spmd_trace.jax.programs import PROGRAMS, mesh
from test_programs import recorded

SCHEMA = pathlib.Path(__file__).parents[3] / "ir" / "json" / "trace.schema.json"
BUNDLED = pathlib.Path(__file__).parents[3] / "examples" / "jax"


def array(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


@pytest.mark.parametrize("gradients", [False, True], ids=["forward", "gradients"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_recording_has_the_form_of_the_format(name, gradients):
    trace = json.loads(dumps(recorded(name, gradients)))
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(trace)
    assert trace["phase"] == ("joint" if gradients else "forward")
    assert trace["producer"]["frontend"] == "jaxpr" and trace["dialect"] == "jax"


def test_same_program_gives_the_same_bytes():
    code = "from test_programs import *; from spmd_trace.jax import dumps; import sys; " \
           "sys.stdout.write(dumps(recorded('ring_attention', True)))"  # fmt: skip
    command, folder = [sys.executable, "-c", code], pathlib.Path(__file__).parent
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == dumps(recorded("ring_attention", True))


def test_places_are_those_of_the_program():
    trace = document(recorded("tp_mlp", True))
    body = trace["functions"]["@shard_map_body"]
    (psum,) = [
        op for op in body["ops"] if op.get("attrs") == {"axis": ["tp"]} and "psum" in op["op"]
    ]
    loc = trace["locs"][psum["loc"]]
    assert trace["files"][loc["file"]]["path"] == "spmd_trace/jax/programs/layers.py"
    assert loc["func"] == "tp_mlp" and loc["line"] > 1 and loc["col"] >= 1
    assert all("path" not in file or not file["path"].startswith("/") for file in trace["files"])


def test_scopes_are_the_names_that_the_program_gives():
    def f(x):
        with jax.named_scope("layer"):
            return jnp.sum(jnp.sin(x))

    program = record(jax.grad(f), array(4), mesh=mesh(AxisType.Explicit))
    assert program.locations.scopes == ["layer"]
    assert {op.phase for op in program.main.ops} == {"fwd", "bwd"}


def test_gradients_are_tied_to_their_arguments():
    trace = document(recorded("fsdp", True))
    tied = [out["grad_of"] for op in trace["ops"] for out in op["out"] if "grad_of" in out]
    assert sorted(tied) == ["%0", "%1", "%2"]
    assert trace["outputs"][0]["role"] == "loss"


def test_expected_types_are_those_of_jax():
    def f(u, r, v):
        return u * r, v * 2.0, lax.all_gather(v, "tp", tiled=True, to="reduced")

    args = [Local((4,), kinds=(("tp", kind),)) for kind in ("P", "Reduced", "V")]
    program = record_local(f, *args, mesh=mesh())
    claims = [entry for op in document(program)["ops"] for entry in op.get("expect", [])]
    kinds = [claim["type"]["tp"] for claim in claims]
    assert kinds == ["P", "V", "Reduced"] and all(claim["type"]["dp"] == "I" for claim in claims)


def test_shapes_on_explicit_axes_are_local():
    program = recorded("explicit_mlp", False)
    product = [op for op in program.main.ops if op.name == "dot_general"]
    assert [op.outs[0].shape for op in product] == [[4, 8], [4, 16]]
    assert product[1].attrs["partial"] == ["tp"]


def test_bodies_are_kept():
    names = {op.name for body in [*recorded("scan_over_remat_layers", False).main.bodies()]
             for op in body.ops}  # fmt: skip
    assert {"scan", "checkpoint"} <= names
    trace = document(recorded("branch", False))
    (op,) = [op for op in trace["functions"]["@shard_map_body"]["ops"] if op["op"] == "cond"]
    assert set(op["regions"]) == {"then", "else"}


def test_three_branches_are_two_choices():
    def f(i, x):
        return lax.switch(i, [jnp.sin, jnp.cos, jnp.tanh], x)

    program = record_local(f, Local((), jnp.int32), Local((4,)), mesh=mesh())
    conds = [op for body in [program.main, *program.main.bodies()] for op in body.ops
             if op.name == "cond"]  # fmt: skip
    assert len(conds) == 2


@pytest.mark.parametrize(
    "function, words",
    [
        (lambda x: lax.ppermute(x, ("dp", "tp"), [(0, 1)]), None),
        (lambda x: lax.psum(x, "tp", axis_index_groups=[[0, 1], [2, 3]]), "NotImplemented"),
    ],
)
def test_communication_that_cannot_be_said(function, words):
    if words is None:
        record_local(function, Local((4,), kinds=(("dp", "V"), ("tp", "V"))), mesh=mesh())
        return
    with pytest.raises((Unrecordable, NotImplementedError)):
        record_local(function, Local((4,), kinds=(("tp", "V"),)), mesh=mesh())


def test_operations_on_axes_of_the_compiler_are_refused():
    with pytest.raises(Unrecordable, match="explicit axes"):
        record(jnp.sin, array(8), mesh=mesh(AxisType.Auto))


@pytest.mark.parametrize("file", examples.TRACES)
def test_bundled_traces_are_recorded_again(file):
    assert examples.text(*examples.TRACES[file]) == (BUNDLED / file).read_text(encoding="utf-8")
