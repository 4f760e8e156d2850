"""`spmd-trace lint` of JAX scripts, which run as they are."""

import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
import unchecked_programs as programs
from jax import lax
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

from spmd_trace.checker import output
from spmd_trace.jax import dumps, lint, versions
from spmd_trace.jax.record import record_call

SCRIPT = pathlib.Path(__file__).parents[3] / "examples" / "jax" / "train_step.py"
PACKAGE = pathlib.Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    "SPMDLINT" not in os.environ, reason="SPMDLINT does not name a checker"
)


def command(name: str, folder, text: str, *options: str) -> subprocess.CompletedProcess:
    script = folder / "train.py"
    script.write_text(text)
    words = [sys.executable, "-m", "spmd_trace", name, *options, str(script)]
    environment = os.environ | {"PYTHONPATH": str(PACKAGE)}
    return subprocess.run(
        words, capture_output=True, text=True, check=False, env=environment, cwd=folder
    )


def linted(folder, text: str, *options: str) -> subprocess.CompletedProcess:
    return command("lint", folder, text, *options)


def test_a_whole_step_has_no_findings(tmp_path):
    done = linted(tmp_path, SCRIPT.read_text())
    assert done.returncode == 0, done.stderr
    assert done.stdout == "" and "no findings" in done.stderr


def test_a_mistake_is_found_at_its_line(tmp_path):
    text = SCRIPT.read_text()
    wrong = text.replace('"tp") + params["bias"]', '"tp")').replace(
        'h @ params["w2"]', 'h @ params["w2"] + params["bias"]'
    )
    assert wrong != text
    done = linted(tmp_path, wrong)
    line = 1 + wrong[: wrong.index("out = ")].count("\n")
    assert done.returncode == 1
    assert f"train.py:{line}:" in done.stdout and "partial-plus-replicate" in done.stdout


SIXTEEN = """
import functools, jax, jax.numpy as jnp
from jax.sharding import AxisType, PartitionSpec as P
mesh = jax.make_mesh((16,), ("dp",), axis_types=(AxisType.Auto,))
@jax.jit
@functools.partial(jax.shard_map, mesh=mesh, in_specs=P("dp"), out_specs=P(), check_vma=False)
def total(x):
    return jax.lax.psum(jnp.sum(x), "dp")
total(jnp.ones(32))
"""


def test_as_many_devices_as_the_mesh_wants(tmp_path):
    assert linted(tmp_path, SIXTEEN).returncode == 0


def test_what_was_recorded_before_a_script_fails_is_checked(tmp_path):
    done = linted(tmp_path, SIXTEEN + "1 / 0\n")
    assert done.returncode == 4
    assert "train.py:10: ZeroDivisionError" in done.stderr


def test_reports_name_the_script(tmp_path):
    """And the function where there are several; nobody has the traces that lint makes."""
    done = linted(tmp_path, SIXTEEN, "--format=junit")
    assert f'<testsuite name="{tmp_path / "train.py"}"' in done.stdout
    twice = SIXTEEN + "print(jax.jit(lambda x: total(2 * x))(jnp.ones(32)))\n"
    done = linted(tmp_path, twice, "--format=junit")
    for name in ("total", "&lt;lambda&gt;"):
        assert f'<testsuite name="{tmp_path / "train.py"} ({name})"' in done.stdout, done.stdout
    assert "spmd.json" not in done.stdout + done.stderr


def test_a_function_is_recorded_into_a_file(tmp_path):
    done = command("record", tmp_path, SIXTEEN, "-o", "total.spmd.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("total.spmd.json: ")
    checked = [os.environ["SPMDLINT"], "check", "--isolated", tmp_path / "total.spmd.json"]
    assert output(checked) == ""


def test_functions_are_recorded_into_files_beside_it(tmp_path):
    twice = SIXTEEN + "print(jax.jit(lambda x: total(2 * x))(jnp.ones(32)))\n"
    done = command("record", tmp_path, twice)
    assert done.returncode == 0, done.stderr
    written = {one.name for one in tmp_path.glob("*.spmd.json")}
    assert written == {"step.total.spmd.json", "step.lambda.spmd.json"}
    assert {line.partition(":")[0] for line in done.stdout.splitlines()} == written


def test_a_file_in_a_folder_that_is_not_there(tmp_path):
    done = command("record", tmp_path, SIXTEEN, "-o", "gone/total.spmd.json")
    assert done.returncode == 3 and "gone/total.spmd.json: no such folder" in done.stderr


def test_a_script_without_a_shard_map(tmp_path):
    done = linted(tmp_path, "import jax\njax.jit(lambda x: x)(1.0)\n")
    assert done.returncode == 3
    assert "no jitted function with a shard_map in it was called (lambda: without one" in (
        done.stderr.replace("<", "").replace(">", "")
    )


_SHARES = """
import jax, jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P
mesh = jax.make_mesh((4,), ("tp",), axis_types=(jax.sharding.AxisType.Auto,))
def loss(w, x, labels):
    logits = x @ w
    total = lax.psum(jnp.exp(logits).sum(-1), "tp")
    local = labels - lax.axis_index("tp") * logits.shape[-1]
    mine = (local >= 0) & (local < logits.shape[-1])
    rows = jnp.clip(local, 0, logits.shape[-1] - 1)
    picked = jnp.take_along_axis(logits, rows[:, None], -1)[:, 0]
    target = lax.psum(jnp.where(mine, picked, 0.0), "tp")
    return (jnp.log(total) - target).mean() {divided}
def step(w, x, labels):
    return w - 0.1 * jax.grad(loss)(w, x, labels)
specs = dict(in_specs=(P(None, "tp"), P(), P()), out_specs=P(None, "tp"))
run = jax.jit(jax.shard_map(step, mesh=mesh, check_vma=False, **specs))
run(jnp.ones((8, 16)), jnp.ones((6, 8)), jnp.arange(6))
"""


def test_a_loss_that_ranks_have_in_common_is_divided_by_their_number(tmp_path):
    """The transposes of its sums add up the gradients of all of them."""
    if words := versions.missing():
        assert words in linted(tmp_path, _SHARES.format(divided="/ 4")).stderr
        pytest.skip(words)
    done = linted(tmp_path, _SHARES.format(divided="/ 4"), "--format=concise")
    assert "no findings" in done.stdout + done.stderr
    done = linted(tmp_path, _SHARES.format(divided=""), "--format=concise")
    assert done.stdout.count("error[reduce-of-replicated]") == 2


def test_lint_of_a_function():
    mesh = AbstractMesh((4,), ("tp",), axis_types=(AxisType.Auto,))

    def mapped(body):
        return jax.shard_map(body, mesh=mesh, in_specs=PartitionSpec("tp"),
                             out_specs=PartitionSpec(), check_vma=False)  # fmt: skip

    x = jnp.ones((8, 3))
    assert lint(mapped(lambda x: lax.psum(jnp.sum(x), "tp")), x) == []
    (found,) = lint(mapped(lambda x: jnp.tanh(jnp.sum(x)) + lax.psum(jnp.sum(x), "tp")), x)
    assert found["name"] == "partial-into-nonlinear"


# Right with check_vma=True, too: their gradients are taken outside, or they have none.
BOTH = ["attention", "batch_norm", "halo", "layer_scan", "summa", "tensor_mlp", "vocab_loss"]


@pytest.mark.parametrize("name", BOTH)
def test_programs_that_jax_checks(name, tmp_path, monkeypatch):
    text = programs.text
    checked = lambda one: text(one).replace("check_vma=False", "check_vma=True")  # noqa: E731
    monkeypatch.setattr(programs, "text", checked)
    module = programs.loaded(name, tmp_path)
    axes = module["AXES"]
    mesh = AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))
    function, arguments = module["program"](mesh)
    trace = tmp_path / "trace.spmd.json"
    trace.write_text(dumps(record_call(function, arguments, {})))
    report = output([os.environ["SPMDLINT"], "check", "--isolated", "--no-fixes", trace])
    assert report == ""


NESTED = """
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))

def mlp(x, up, down):
    return lax.psum(jnp.tanh(x @ up) @ down, "model")

def loss(params, x, y):
    inner = jax.shard_map(mlp, in_specs=(P(), P(None, "model"), P("model")), out_specs=P(),
                          axis_names={"model"}, check_vma=False)
    made = x + inner(x, *params)
    return lax.pmean(jnp.mean((made - y) ** 2), "data")

outer = jax.shard_map(loss, mesh=mesh, in_specs=(P(), P("data"), P("data")), out_specs=P(),
                      axis_names={"data"}, check_vma=False)

@jax.jit
def step(params, x, y):
    value, gradients = jax.value_and_grad(outer)(params, x, y)
    return jax.tree.map(lambda w, g: w - 0.1 * g, params, gradients), value

k = jax.random.split(jax.random.key(0), 3)
params = jax.random.normal(k[0], (6, 16)), jax.random.normal(k[1], (16, 6))
step(params, jax.random.normal(k[2], (8, 6)), jnp.ones((8, 6)))
"""


@pytest.mark.parametrize(
    "was, now, finding",
    [
        ("", "", None),
        ("lax.psum(jnp.tanh(x @ up) @ down, ", "lax.pmean(jnp.tanh(x @ up) @ down, ", "scale"),
        ('lax.psum(jnp.tanh(x @ up) @ down, "model")', "jnp.tanh(x @ up) @ down", "claim"),
        ("lax.pmean(jnp.mean", "lax.psum(jnp.mean", "scale"),
    ],
)
def test_a_shard_map_inside_of_another_one(was, now, finding, tmp_path):
    done = linted(tmp_path, NESTED.replace(was, now) if was else NESTED)
    assert done.returncode == (0 if finding is None else 1), done.stdout + done.stderr
    assert finding is None or f"error[{finding}" in done.stdout


PAIRS = """
import jax, jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Explicit,))
jax.set_mesh(mesh)

def pairs(a, b):
    rows = a.shape[0]
    labels = lax.axis_index("data") * rows + jnp.arange(rows)
    logits = a @ lax.all_gather(b, "data", axis=0, tiled=True).T
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], -1)
    return -lax.pmean(jnp.mean(picked), "data")

loss = jax.shard_map(pairs, in_specs=(P("data"), P("data")), out_specs=P())
step = jax.jit(lambda w, x, y: w - 0.1 * jax.grad(lambda w: loss(x @ w, y @ w))(w))
x, y = (jax.device_put(jax.random.normal(jax.random.key(i), (8, 6)), NamedSharding(mesh, P("data")))
        for i in range(2))
step(jnp.ones((6, 3)), x, y)
"""


@pytest.mark.skipif(not hasattr(jax, "set_mesh"), reason="this JAX has no mesh of the context")
def test_a_mesh_of_the_context(tmp_path):
    done = linted(tmp_path, PAIRS, "--confirm")
    assert done.returncode == 0 and "no findings" in done.stderr, done.stdout + done.stderr
    assert "1 of 1 functions were compared" in done.stderr
    assert "traced with one rank" not in done.stderr
    wrong = PAIRS.replace('lax.axis_index("data") * rows + jnp.arange(rows)', "jnp.arange(rows)")
    found = linted(tmp_path, wrong, "--confirm").stdout
    assert "warning[repeated-positions]" in found and "error[unlike-one-device]" in found


CONSTRAINED = """
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()[:4]), ("data",))
total = jax.shard_map(lambda x: lax.psum(jnp.sum(x), "data"), mesh=mesh, in_specs=P("data"),
                      out_specs=P(), check_vma=False)

@jax.jit
def loss(x):
    x = lax.with_sharding_constraint(x, NamedSharding(mesh, P("data")))
    return total((x - x.mean(-1, keepdims=True)) ** 2)

loss(jnp.ones((8, 6)))
"""


def test_one_element_beside_blocks_is_stretched(tmp_path):
    done = linted(tmp_path, CONSTRAINED)
    assert done.returncode == 0 and "no findings" in done.stderr, done.stdout + done.stderr


# Micro-batches in a loop around the shard_map, with an optimizer that begins with the number 0.
AROUND = """
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()[:4]), ("dp",))
loss = jax.shard_map(lambda w, x: lax.pmean(jnp.mean((x @ w) ** 2), "dp"), mesh=mesh,
                     in_specs=(P(), P("dp")), out_specs=P(), check_vma=False)

@jax.jit
def step(w, batch):
    def micro(carry, x):
        total, count = carry
        value, gradient = jax.value_and_grad(loss)(w, x)
        return (total + gradient, jnp.where(count < 9, count + 1, 9)), value

    (total, count), values = lax.scan(micro, (jnp.zeros_like(w), 0), batch)
    return w - 0.1 * total / count, values.mean()

step(jnp.ones((3, 2)), jnp.ones((TURNS, 8, 3)))
"""


def test_a_loop_around_a_shard_map(tmp_path):
    done = linted(tmp_path, AROUND.replace("TURNS", "2"))
    assert done.returncode == 0, done.stdout
    assert "2 of 2 results proved on dp" in done.stderr
    wrong = AROUND.replace("TURNS", "2").replace("lax.pmean", "lax.psum")
    assert "scale-mismatch" in linted(tmp_path, wrong).stdout
    many = linted(tmp_path, AROUND.replace("TURNS", "100"))
    assert "a scan of 100 turns around a shard_map: jit one turn of it" in many.stderr
