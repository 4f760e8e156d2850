"""Modules of StableHLO: what is recorded of a program is recorded of the module that JAX lowers
it to."""

import json
import math
import os

import jax
import jax.numpy as jnp
import of_one_jax  # noqa: F401  what is inferred is of one version
import pytest
import unchecked_programs as programs
from jax import export, lax
from jax.sharding import AxisType, PartitionSpec

from spmd_trace.checker import output
from spmd_trace.command import main
from spmd_trace.jax import Unrecordable, dumps
from spmd_trace.jax.stablehlo.module import record_module

ALL = bool(os.environ.get("SPMD_TEST_ALL"))
NAMES = programs.NAMES[:: 1 if ALL else 3]
# Mistakes that are found in the program, and why not in its module.
NOT_IN_MODULES = {
    "vocab_loss.no_mask_of_labels": "the mask is a call in the module, with other operands",
    "accumulation.sum_for_mean": "a scan is a loop, whose carries begin as blocks of zeros",
    "token_counts.divided_again": "the number beside no sum is the size of an axis",
    "accumulation.inside_too": "an average of what all ranks have changes nothing, and a scale out "
    "of a loop is unknown",
}

needs_checker = pytest.mark.skipif(
    "SPMDLINT" not in os.environ, reason="SPMDLINT does not name a checker"
)


def mesh(axes: dict[str, int]):
    devices = jax.devices()[: math.prod(axes.values())]
    kinds = (AxisType.Auto,) * len(axes)
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=kinds, devices=devices)


def module(name: str, folder) -> str:
    loaded = programs.loaded(name, folder)
    function, arguments = loaded["program"](mesh(loaded["AXES"]))
    return function.lower(*arguments).as_text(debug_info=True)


def findings(data: bytes, folder) -> list[dict]:
    program, _ = record_module(data)
    trace = folder / "module.spmd.json"
    trace.write_text(dumps(program))
    options = ["--isolated", "--format=json", "--no-fixes", "--max-findings=100000"]
    return json.loads(output([os.environ["SPMDLINT"], "check", *options, trace]))["findings"]


@needs_checker
@pytest.mark.parametrize("name", NAMES)
def test_modules_of_right_programs(name, tmp_path):
    assert findings(module(name, tmp_path).encode(), tmp_path) == []


@needs_checker
@pytest.mark.parametrize(
    "name", [one for one in programs.MISTAKES if one.partition(".")[0] in NAMES]
)
def test_modules_of_mistakes(name, tmp_path):
    found = findings(module(name, tmp_path).encode(), tmp_path)
    known = name not in NOT_IN_MODULES and "silent" not in programs.MISTAKES[name]
    assert bool(found) == known
    if any(one["name"] != "claim-mismatch" for one in found):  # a claim has the place of the call
        assert f"{name}.py" in json.dumps(found)


def total(x, w):
    part = lax.psum(jnp.sum(x @ w, axis=0), "tp")
    return lax.psum(part, "dp") * (1.0 + lax.axis_index("tp"))


def mapped(function, out=PartitionSpec()):
    specs = (PartitionSpec("dp", "tp"), PartitionSpec("tp"))
    made = jax.shard_map(function, mesh=mesh({"dp": 2, "tp": 4}), in_specs=specs, out_specs=out,
                         check_vma=False)  # fmt: skip
    return jax.jit(made), (jnp.ones((4, 8)), jnp.ones((8, 4)))


def forms(tmp_path) -> dict[str, bytes]:
    """One wrong program in each form: its result depends on the rank, and is stated to be equal
    on all."""
    function, arguments = mapped(total)
    exported = export.export(function)(*arguments)
    lowered = function.lower(*arguments)
    return {
        "text": lowered.as_text(debug_info=True).encode(),
        "bytecode": exported.mlir_module_serialized,
        "artifact": bytes(exported.serialize()),
    }


@needs_checker
@pytest.mark.parametrize("form", ["text", "bytecode", "artifact"])
def test_forms(form, tmp_path):
    pytest.importorskip("flatbuffers")
    (found,) = findings(forms(tmp_path)[form], tmp_path)
    assert found["name"] == "claim-mismatch" and "V@tp" in found["message"]


def test_groups_become_axes():
    def grouped(x, w):
        return lax.psum(x, "tp", axis_index_groups=[[0, 1], [2, 3]])

    function, arguments = mapped(grouped, PartitionSpec("dp", "tp"))
    program, _ = record_module(function.lower(*arguments).as_text().encode())
    assert program.axes == {"dp": 2, "tp_0": 2, "tp_1": 2}
    (op,) = [one for one in program.main.ops if one.name == "psum"]
    assert op.attrs["axis"] == ["tp_1"]


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("HloModule jit_f", "this is HLO text: dump StableHLO"),
        ("module {", "this is no module of StableHLO"),
        ("module {}", "there is no mesh of more than one device"),
        ("module { sdy.mesh @m = <[\"x\"=2]> }", "there is no function `main`"),
        (b"\x00\xff\xfe", "neither a module nor what jax.export has serialized"),
    ],
)  # fmt: skip
def test_what_is_no_module(text, sentence):
    pytest.importorskip("flatbuffers")
    with pytest.raises(Unrecordable, match=sentence):
        record_module(text if isinstance(text, bytes) else text.encode())


def test_the_command(tmp_path, capsys):
    function, arguments = mapped(total)
    (tmp_path / "step.mlir").write_text(function.lower(*arguments).as_text(debug_info=True))
    words = [str(tmp_path / "step.mlir"), "-o", str(tmp_path / "step.spmd.json")]
    assert main(["import", *words]) == 0
    assert "operations" in capsys.readouterr().out
    assert "test_modules.py" in (tmp_path / "step.spmd.json").read_text()
