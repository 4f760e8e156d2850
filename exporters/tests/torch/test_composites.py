"""Composite functions, contexts and stand-ins, on programs of a few lines."""

import importlib

import pytest
import torch

from spmd_trace.torch import Axis, Mesh, Recorder, dumps
from spmd_trace.torch.composites import Composites
from spmd_trace.torch.document import document
from spmd_trace.torch.frameworks import standins


def recorded(run, *inputs, context=None) -> dict:
    recorder = Recorder(Mesh("main", [Axis("dp", 4, 1)]))
    if context is not None:
        recorder.context = lambda op: context
    for index, tensor in enumerate(inputs):
        recorder.declare(tensor, "input", f"x{index}", type={"dp": "V"})
    with recorder.recording(), Composites(recorder):
        run(recorder, *inputs)
    assert dumps(recorder.program)
    return document(recorder.program)


def test_a_linear_layer_is_one_operation_and_owns_its_backward():
    x, w = torch.randn(2, 3, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True)

    def step(recorder, x, w):
        recorder.backward(torch.nn.functional.linear(x, w).square().sum())

    ops = recorded(step, x, w)["ops"]
    forward = [op for op in ops if op.get("phase", "fwd") == "fwd"]
    assert [op["op"] for op in forward][0] == "aten.linear.default"
    assert not [op for op in forward if op["op"] in ("aten.mm.default", "aten.view.default")]
    result = forward[0]["out"][0]["id"]
    products = [op for op in ops if op["op"] == "aten.mm.default"]
    assert len(products) == 2 and {op["bwd_of"] for op in products} == {result}
    gradients = {value.get("grad_of") for op in ops for value in op["out"]}
    assert {result, "%0", "%1"} <= gradients


@pytest.mark.parametrize(
    "run, name",
    [
        (lambda x: x @ x, "aten.matmul.default"),
        (lambda x: torch.matmul(x, x), "aten.matmul.default"),
        (lambda x: torch.einsum("bij,bjk->bik", x, x), "aten.einsum.default"),
        (lambda x: torch.einsum("bij,bjk->bik", [x, x]), "aten.einsum.default"),
    ],
)
def test_products_are_whole(run, name):
    ops = recorded(lambda recorder, x: run(x), torch.randn(2, 3, 3))["ops"]
    assert [op["op"] for op in ops] == [name]
    assert (ops[0].get("attrs", {}).get("equation") is not None) == ("einsum" in name)


def test_other_functions_are_what_they_dispatch():
    ops = recorded(lambda recorder, x: torch.nn.functional.softmax(x, -1), torch.randn(2, 3))["ops"]
    assert [op["op"] for op in ops] == ["aten._softmax.default"]


def test_assertions_about_data_are_no_operations():
    ops = recorded(lambda recorder, x: torch._assert_async(x.sum() < 1e9), torch.randn(2))["ops"]
    assert [op["op"] for op in ops] == ["aten.sum.default", "aten.lt.Scalar"]


def test_contexts_are_those_that_operations_were_given():
    unchecked = Mesh("other", [Axis("ep", 4, 1)]).context(local=True)
    found = recorded(lambda recorder, x: x + 1, torch.randn(2), context=unchecked)
    assert found["contexts"][found["ops"][0]["ctx"]] == {"mesh": "other", "local": ["ep"]}


def test_standins_are_for_what_is_missing():
    with standins.installed(("json", "no_such_package_at_all")):
        module = importlib.import_module("no_such_package_at_all.inner")
        assert isinstance(module.Anything, type) and module.Anything("x").more is not None
        assert not isinstance(3, module.Anything)

        @module.decorator.with_options(3)
        class Decorated(module.Base):
            pass

        assert importlib.import_module("json").dumps([1]) == "[1]"
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_package_at_all.other")
