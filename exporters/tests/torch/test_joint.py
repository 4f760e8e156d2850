"""Graphs with their backward, as AOTAutograd and torch.export give them."""

import json
import subprocess
import sys

import jsonschema
import pytest

import judged
import spmd_trace
import spmd_trace.torch  # noqa: F401  before torch
import torch
import torch.distributed as dist
import torch.nn.functional as F
from spmd_trace import document
from torch.distributed import _functional_collectives as functional
from traces import schema

from spmd_trace.torch import joint
from spmd_trace.torch.frameworks import cpu

needs_checker = pytest.mark.skipif(judged.checker() is None, reason="SPMDLINT names no checker")


class _Used(torch.autograd.Function):
    """Activations that all ranks have, into layers that are cut: their gradients are added up."""

    sums = True

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return functional.all_reduce(gradient, "sum", dist.group.WORLD) if _Used.sums else gradient


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return functional.all_reduce(x, "sum", dist.group.WORLD)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class _Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.up = torch.nn.Linear(8, 4)
        self.down = torch.nn.Linear(4, 8, bias=False)

    def forward(self, x, y):
        h = F.gelu(self.up(_Used.apply(self.norm(x))))
        return (F.mse_loss(_Summed.apply(self.down(h)), y),)


_TYPES = {"*": {"tp": "I"}, "up.*": {"tp": "V"}, "down.*": {"tp": "V"}}
_BATCH = (torch.zeros(3, 8), torch.zeros(3, 8))


def _found(trace: dict, tmp_path) -> set[tuple[str, str]]:
    """Names of findings, and the gradients that they are about."""
    jsonschema.Draft202012Validator(schema()).validate(trace)
    file = tmp_path / "joint.spmd.json"
    file.write_text(document.text(trace))
    return {(one["name"], one["message"].partition(" is ")[0]) for one in judged.reports(file)}


@needs_checker
@pytest.mark.parametrize("sums", [True, False])
def test_the_gradients_of_a_joint_graph_are_judged(sums, tmp_path, monkeypatch):
    from torch._functorch.aot_autograd import aot_export_module

    monkeypatch.setattr(_Used, "sums", sums)
    with cpu.fake_ranks(0, 2):
        pair = aot_export_module(_Block(), _BATCH, trace_joint=True, output_loss_index=0)
        groups = {dist.group.WORLD.group_name: ["tp"]}
        trace = spmd_trace.import_graph(pair, {"tp": 2}, _TYPES, groups=groups)
    assert trace["phase"] == "joint"
    names = {one["id"]: one["name"] for one in trace["params"]}
    roles = [(one["role"], names.get(one.get("of"))) for one in trace["outputs"]]
    wanted = ["norm.weight", "norm.bias", "up.weight", "up.bias", "down.weight"]
    assert roles == [("loss", None), *(("grad", name) for name in wanted)]
    phases = [op.get("phase", "fwd") for op in trace["ops"]]
    assert phases == sorted(phases, reverse=True) and set(phases) == {"fwd", "bwd"}
    found = _found(trace, tmp_path)
    assert {name for name, _ in found} == (set() if sums else {"gradient-type-mismatch"})
    assert all("norm." in about for _, about in found)


class _Mean(torch.nn.Module):
    """Ranks have batches of their own, and sum their gradients elsewhere."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x, y):
        return F.mse_loss(self.layer(x), y)


@needs_checker
def test_an_exported_program_with_its_backward_is_read_by_the_command(tmp_path):
    from torch.export import experimental

    program = torch.export.export(_Mean(), _BATCH)
    torch.export.save(experimental._export_forward_backward(program), tmp_path / "mean.pt2")
    out = tmp_path / "out.json"
    words = ["mean.pt2", "--mesh", "dp=2", "-o", out]
    for kinds in ("layer.*:dp=R", "x:dp=V", "y:dp=V", "loss:dp=P"):
        words += ["--type", kinds]
    done = _import(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    trace = json.loads(out.read_text())
    assert [one["role"] for one in trace["outputs"]] == ["loss", "grad", "grad"]
    assert {name for name, _ in _found(trace, tmp_path)} == {"unreduced-gradient"}
    done = _import(tmp_path, *words, "--sync", "dp=avg")
    assert done.returncode == 0, done.stderr
    assert _found(json.loads(out.read_text()), tmp_path) == set()
    words[-1] = "loss:dp=V"
    done = _import(tmp_path, *words)
    assert done.returncode == 2 and "a loss is the sum over an axis (P)" in done.stderr
    done = _import(tmp_path, *words, "--sync", "tp")
    assert done.returncode == 2 and "tp is no axis of the mesh: dp" in done.stderr


def _import(folder, *words):
    line = [sys.executable, "-m", "spmd_trace", "import", *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, check=False, cwd=folder)


def test_autograd_numbers_pair_the_backward_of_a_compiled_program():
    from functorch.compile import default_partition, make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    traces = []

    def partition(graph, inputs, **words):
        traces.append(spmd_trace.import_graph(graph, {"dp": 2}))
        assert (_named := joint._named(*_parts(graph))) is not None
        assert _named.gradients == joint.read(graph.graph).gradients
        assert _named.tangents == joint.read(graph.graph).tangents
        return default_partition(graph, inputs, **words)

    backend = aot_autograd(
        fw_compiler=lambda graph, _: make_boxed_func(graph.forward), partition_fn=partition
    )
    torch.compile(_Mean(), backend=backend)(*_BATCH)
    (trace,) = traces
    made = {one["id"]: op["op"] for op in trace["ops"] for one in op["out"]}
    pairs = {op["op"]: made[op["bwd_of"]] for op in trace["ops"] if "bwd_of" in op}
    assert pairs["aten.mse_loss_backward.default"] == "aten.mse_loss.default"
    (tangent,) = [one for one in trace["params"] if "grad_of" in one]
    assert made[tangent["grad_of"]] == "aten.mse_loss.default"
    assert [one["role"] for one in trace["outputs"]] == ["output", "grad", "grad"]


def _parts(module) -> tuple[dict, list]:
    inputs = {node.name: node for node in module.graph.nodes if node.op == "placeholder"}
    return inputs, joint._results(module.graph)


def test_results_that_could_be_anything_are_refused():
    def program(primals_1, primals_2, tangents_1):
        return primals_1 + primals_2, primals_1 * 2, tangents_1, tangents_1

    graph = torch.fx.symbolic_trace(program)
    with pytest.raises(NotImplementedError, match="1 of 2 results of the forward have gradients"):
        spmd_trace.import_graph(graph, {"dp": 2}, inputs=[torch.zeros(2)] * 3)
