"""Calls as Python makes them, of all functions that torch has samples of: the checker binds each by
its signature and finds the shapes and dtypes that torch gives.
"""

import collections
import json
import pathlib
import subprocess

import pytest

import judged
import of_one_torch  # noqa: F401  the table is of one version
import spmd_trace.torch  # noqa: F401  before torch: it says what to do without CUDA libraries
import torch
from spmd_trace import document
from spmd_trace.torch import signatures
from spmd_trace.torch.values import DTYPES

pytestmark = pytest.mark.skipif(judged.checker() is None, reason="SPMDLINT names no checker")

_TABLE = pathlib.Path(__file__).parents[3] / "ir" / "calls" / "torch.txt"
_SAMPLES = 12  # of each function
# Calls that rows do not follow yet, or that are not bound; each is to go.
_KNOWN = dict.fromkeys(
    "torch.bincount torch.cumulative_trapezoid torch.gradient torch.histogram "
    "torch.linspace torch.logspace torch.searchsorted torch.stft "
    "torch.tensor_split torch.trapezoid torch.trapz".split(),
    "the row has no such operand",
)
_KNOWN |= dict.fromkeys(["torch.atleast_1d", "torch.atleast_2d"], "the row takes no list")
_KNOWN |= dict.fromkeys(
    ["torch.conv_transpose1d", "torch.conv_transpose2d", "torch.conv_transpose3d"],
    "groups are not counted",
)
_KNOWN |= dict.fromkeys(
    ["torch.cosine_similarity", "torch.masked_scatter", "torch.take_along_dim"],
    "nothing is broadcast",
)
_KNOWN |= {
    "torch.cat": "an empty tensor of one dimension goes with any other",
    "torch.nn.functional.ctc_loss": "lengths may be lists",
    "torch.nn.functional.nll_loss": "without a batch",
    "torch.norm": "norms of matrices",
    "torch.prelu": "of a number",
    "torch.repeat_interleave": "of a number",
}


def test_the_table_is_that_of_the_installed_torch():
    assert _TABLE.read_text() == signatures.text(), (
        "python -m spmd_trace.torch.signatures -o ir/calls/torch.txt"
    )


def _names() -> set[str]:
    lines = _TABLE.read_text().splitlines()
    return {name for line in lines if line.startswith("= ") for name in line[2:].split()}


class _Calls:
    """Calls of one trace, and what they are about."""

    def __init__(self):
        self.params, self.ops, self.about = [], [], []

    def _value(self, tensor) -> dict:
        """A new value like a tensor."""
        count = len(self.params) + sum(len(op["out"]) for op in self.ops)
        return {"id": f"%{count}", "dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape)}

    def argument(self, item):
        if isinstance(item, torch.Tensor):
            if item.layout is not torch.strided or item.dtype not in DTYPES:
                raise NotImplementedError
            self.params.append(
                self._value(item) | {"role": "input", "type": {"tp": "R"}, "requires_grad": False}
            )
            return self.params[-1]["id"]
        if isinstance(item, (list, tuple)):
            return [self.argument(one) for one in item]
        if isinstance(item, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
            return str(item)
        if item is None or isinstance(item, (bool, int, float, str)):
            return document.number(item)
        raise NotImplementedError

    def add(self, name: str, args, kwargs, result) -> None:
        results = list(result) if isinstance(result, (list, tuple)) else [result]
        kept = len(self.params)
        try:
            if not all(isinstance(one, torch.Tensor) for one in results):
                raise NotImplementedError
            call = {
                "op": name,
                "args": self.argument(args),
                "kwargs": {k: self.argument(v) for k, v in kwargs.items()},
            }
        except NotImplementedError:
            del self.params[kept:]
            return
        self.ops.append(call | {"out": []})
        for one in results:
            self.ops[-1]["out"].append(self._value(one))

    def trace(self, left_out) -> str:
        mesh = {"id": "m", "axes": [{"name": "tp", "size": 2}]}
        ops = [op for at, op in enumerate(self.ops) if at not in left_out]
        head = {"format": "spmd-trace", "version": "1.1", "requires": ["calls"], "mode": "local"}
        return document.text(head | {"meshes": [mesh], "params": self.params, "ops": ops})


def _named(info) -> list[tuple[str, collections.abc.Callable]]:
    """The names under which what `info` is about is called, and what to call."""
    word = getattr(info.op, "__name__", "")
    namespaces = {
        "torch": torch,
        "torch.nn.functional": torch.nn.functional,
        "torch.special": torch.special,
    }
    namespaces |= {"torch.linalg": torch.linalg, "torch.fft": torch.fft}
    found = [
        (f"{place}.{word}", info.op)
        for place, owner in namespaces.items()
        if getattr(owner, word, 0) is info.op
    ][:1]
    return found + (
        [(f"torch.Tensor.{word}", info.method_variant)] if found and info.method_variant else []
    )


@pytest.fixture(scope="module")
def calls() -> _Calls:
    """Samples of all functions that the table has."""
    pytest.importorskip("expecttest", reason="torch's samples need it")
    from torch.testing._internal.common_methods_invocations import op_db

    made, names = _Calls(), _names()
    torch.manual_seed(0)
    for info in op_db:
        known = [(name, call) for name, call in _named(info) if name in names]
        dtype = next((one for one in (torch.float32, torch.int64) if one in info.dtypes), None)
        if not known or dtype is None:
            continue
        for sample in list(info.sample_inputs("cpu", dtype, requires_grad=False))[:_SAMPLES]:
            args = (sample.input, *sample.args)
            for name, call in known if isinstance(sample.input, torch.Tensor) else known[:1]:
                made.add(name, args, sample.kwargs, call(*args, **sample.kwargs))
    return made


def _checked(calls: _Calls, path) -> dict[str, set[str]]:
    """By function: what the checker says of its calls."""
    said: dict[str, set[str]] = collections.defaultdict(set)
    left_out: set[int] = set()
    while True:
        path.write_text(calls.trace(left_out))
        line = [
            judged.checker(),
            "check",
            "--format=json",
            "--no-fold",
            "--max-findings=100000",
            path,
        ]
        found = json.loads(subprocess.run(line, capture_output=True, text=True, check=False).stdout)
        kept = [at for at in range(len(calls.ops)) if at not in left_out]
        for error in found["inputs"][0]["errors"]:
            at = kept[int(error["key"].partition("[")[2].partition("]")[0])]
            left_out.add(at)
            said[calls.ops[at]["op"]].add(error["message"])
        if not found["inputs"][0]["errors"]:
            break
    for finding in found["findings"]:
        if finding["severity"] != "info":
            said[calls.ops[kept[finding["places"][0]["op_index"]]]["op"]].add(finding["message"])
    return said


def test_calls_of_all_functions_are_bound(calls, tmp_path):
    functions = {op["op"] for op in calls.ops}
    assert len(functions) > 500 and len(calls.ops) > 3000
    said = _checked(calls, tmp_path / "calls.spmd.json")
    unknown = {
        name: words for name, words in said.items() if name.replace("Tensor.", "") not in _KNOWN
    }
    assert not unknown
    assert not _KNOWN.keys() - {name.replace("Tensor.", "") for name in said}, (
        "these are right by now"
    )
