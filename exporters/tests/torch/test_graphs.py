"""Graphs of torch.export and torch.fx as traces: calls that the checker binds, types and groups by
options."""

import json
import subprocess
import sys

import jsonschema
import pytest

import judged
import spmd_trace
import spmd_trace.torch  # noqa: F401  before torch: it says what to do without CUDA libraries
import torch
import torch.nn.functional as F
from spmd_trace import document
from torch.distributed import _functional_collectives as functional
from traces import schema

from spmd_trace.torch.frameworks import cpu

needs_checker = pytest.mark.skipif(judged.checker() is None, reason="SPMDLINT names no checker")


class Block(torch.nn.Module):
    """What a rank of two runs: columns of one weight, rows of the next."""

    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(8, 4)
        self.down = torch.nn.Linear(4, 8, bias=False)
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, x):
        self.seen.add_(1.0)
        h = F.gelu(self.up(x), approximate="tanh")
        first, second = torch.chunk(self.down(h), 2, dim=-1)
        return torch.sum(first.reshape(2, -1), 1, True) + second.mean(), torch.zeros(
            2, 3, dtype=torch.int64
        )


_TYPES = {"x": {"tp": "R"}, "up.*": {"tp": "V"}, "down.weight": {"tp": "V"}, "seen": {"tp": "R"}}


def _findings(trace: dict, tmp_path) -> list[dict]:
    path = tmp_path / "graph.spmd.json"
    path.write_text(document.text(trace))
    return judged.reports(path)


def _exported():
    return torch.export.export(Block(), (torch.randn(6, 8),))


def test_an_exported_program_is_a_trace():
    trace = spmd_trace.import_graph(_exported(), {"tp": 2}, _TYPES)
    jsonschema.Draft202012Validator(schema()).validate(trace)
    roles = {p["name"]: p["role"] for p in trace["params"]}
    assert roles == {
        "up.weight": "param",
        "up.bias": "param",
        "down.weight": "param",
        "seen": "buffer",
        "x": "input",
    }
    names = [op["op"] for op in trace["ops"]]
    assert names[:3] == ["aten.add_.Tensor", "aten.linear.default", "aten.gelu.default"]
    (chunk,) = [op for op in trace["ops"] if op["op"] == "aten.chunk.default"]
    assert chunk["args"][1:] == [2, -1] and [out["shape"] for out in chunk["out"]] == [[6, 4]] * 2
    assert trace["scopes"] == ["up", "down"] and trace["locs"][0]["func"] == "forward"


@needs_checker
def test_the_checker_binds_its_calls(tmp_path):
    trace = spmd_trace.import_graph(_exported(), {"tp": 2}, _TYPES)
    assert _findings(trace, tmp_path) == []
    for one in trace["params"]:  # a weight that is whole, and a bias that is not
        if one["name"] == "up.weight":
            one["type"] = {"tp": "I"}
    assert "invariant-mixed" in {found["name"] for found in _findings(trace, tmp_path)}


@needs_checker
def test_a_traced_module_is_followed_into_its_parts(tmp_path):
    graph = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()))
    trace = spmd_trace.import_graph(
        graph, {"tp": 2}, {"input": {"tp": "R"}}, inputs=[torch.zeros(2, 8)]
    )
    assert [op["op"] for op in trace["ops"]] == [
        "torch.nn.functional.linear",
        "torch.nn.functional.relu",
    ]
    assert trace["ops"][0]["out"][0]["shape"] == [2, 4]
    assert _findings(trace, tmp_path) == []


@needs_checker
def test_functions_and_methods_of_python_are_bound(tmp_path):
    def program(x, i, w):
        y = x.view(2, 12).permute(1, 0).to(torch.float64)
        z = F.embedding(i, w) + F.layer_norm(x, (4,), eps=1e-3).sum()
        y.mul_(2)
        return torch.cat([y, y], dim=1).sum(axis=0, keepdims=True), torch.max(z, 1), 1.0 - z

    inputs = [torch.zeros(6, 4), torch.zeros(3, dtype=torch.int64), torch.zeros(5, 4)]
    trace = spmd_trace.import_graph(
        torch.fx.symbolic_trace(program), {"tp": 2}, {"*": {"tp": "R"}}, inputs=inputs
    )
    assert "torch.Tensor.mul_" in [op["op"] for op in trace["ops"]]
    assert _findings(trace, tmp_path) == []


@needs_checker
def test_collectives_are_along_the_axes_that_their_groups_are_said_to_be(tmp_path):
    with cpu.fake_ranks(0, 2):
        group = torch.distributed.group.WORLD

        def program(x, w):
            return functional.all_reduce(F.linear(x, w), "sum", group) * 2

        inputs = (torch.zeros(2, 4), torch.zeros(8, 4))
        graph = torch.fx.experimental.proxy_tensor.make_fx(program, tracing_mode="fake")(*inputs)
        name = group.group_name
        types = {"x_1": {"tp": "V"}, "w_1": {"tp": "V"}}
        with pytest.raises(NotImplementedError, match=f"--group {name}=AXIS"):
            spmd_trace.import_graph(graph, {"tp": 2}, types)
        trace = spmd_trace.import_graph(graph, {"tp": 2}, types, groups={name: ["tp"]})
    (reduced,) = [op for op in trace["ops"] if op["op"] == "all_reduce"]
    assert reduced["attrs"] == {"axis": "tp", "op": "sum"}
    assert _findings(trace, tmp_path) == []


def test_what_no_trace_can_say_is_refused():
    sliced = torch.fx.symbolic_trace(lambda x: x[1:])
    with pytest.raises(NotImplementedError, match="an argument of slice has no form in a trace"):
        spmd_trace.import_graph(sliced, {"tp": 2}, inputs=[torch.zeros(4)])
    with pytest.raises(ValueError, match="nothing is called y; there are: x"):
        spmd_trace.import_graph(
            torch.fx.symbolic_trace(lambda x: x + 1), {"tp": 2}, {"y": {"tp": "R"}}
        )


def _command(*words):
    line = [sys.executable, "-m", "spmd_trace", "import", *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def test_the_command_reads_archives_and_saved_graphs(tmp_path):
    torch.export.save(_exported(), tmp_path / "block.pt2")
    words = ["--mesh", "tp=2", "--type", "x:tp=R", "-o", tmp_path / "out.json"]
    done = _command(tmp_path / "block.pt2", *words)
    assert done.returncode == 0 and done.stdout.endswith("out.json: 10 operations\n"), done.stderr
    torch.save(torch.fx.symbolic_trace(torch.nn.ReLU()), tmp_path / "relu.pt")
    done = _command(
        tmp_path / "relu.pt", "--input", "f32[2,8]", "--type", "input:tp=V", *words[:2], *words[4:]
    )
    assert done.returncode == 0, done.stderr
    (op,) = json.loads((tmp_path / "out.json").read_text())["ops"]
    assert (op["op"], op["out"][0]["shape"]) == ("torch.nn.functional.relu", [2, 8])


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["none.pt2", "--mesh", "tp=2"], "none.pt2: no such file"),
        ([__file__, "--mesh", "tp=2"], "is neither an archive of torch.export nor a saved graph"),
        ([__file__, "--mesh", "tp"], "a mesh is AXIS=SIZE,AXIS=SIZE, outermost first"),
        ([__file__, "--mesh", "tp=2", "--type", "x"], "a type is NAME:AXIS=KIND,AXIS=KIND"),
        ([__file__, "--mesh", "tp=2", "--input", "f99[2]"], "an input is DTYPE[SIZE,SIZE]"),
    ],
)
def test_bad_input_gives_one_sentence(words, sentence):
    done = _command(*words)
    assert done.returncode == 2 and sentence in done.stderr.splitlines()[-1]
