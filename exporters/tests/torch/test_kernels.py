"""The runtime's kernels against torch's own ops: results and gradients."""

import os
import subprocess

import numpy as np
import pytest

import of_one_torch  # noqa: F401  what is kept is of one version
import spmd_trace.torch  # noqa: F401  before torch: it says what to do without CUDA libraries
import torch
from spmd_trace.torch.operands import bind
from spmd_trace.torch.values import DTYPES

from kernel_cases import Case, Composed, all_cases, composed
from kernel_cases_tensors import tensor_cases

RUNNER = os.environ.get("SPMD_RUN_OPS")
pytestmark = pytest.mark.skipif(RUNNER is None, reason="SPMD_RUN_OPS does not name a program")

# Rows that torch has nothing for, or whose numbers are drawn.
NOT_IN_TORCH = {"sum_rounded", "item", "gumbel_softmax", "nll_loss_backward_mean"}


def shape(tensor: torch.Tensor) -> str:
    return f"{DTYPES[tensor.dtype]}[{', '.join(map(str, tensor.shape))}]"


def text(value) -> str:
    if isinstance(value, dict):
        return value["num"]
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(text, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else "null" if value is None else repr(value)


class Program:
    """All cases as one program of the text form, and what torch makes of them."""

    def __init__(self, folder):
        self.folder = folder
        self.inputs, self.lines, self.wanted, self.what, self.rtol = {}, [], {}, {}, {}

    def save(self, tensor: torch.Tensor) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = f"%{name} = input {shape(tensor)} R"
        np.save(self.folder / f"{name}.npy", np.ascontiguousarray(tensor.detach().numpy()))
        return f"%{name}"

    def operand(self, value) -> str:
        if isinstance(value, torch.Tensor):
            return self.save(value)
        if isinstance(value, list):
            return f"[{', '.join(map(self.operand, value))}]"
        return text(value)

    def call(
        self, op: str, operands: list[str], attrs: dict, results, what: str, rtol: float
    ) -> None:
        names = [f"r{len(self.wanted) + i}" for i in range(len(results))]
        heads = ", ".join(f"%{n}: {shape(r)}" for n, r in zip(names, results))
        body = ", ".join(f"{key} = {text(value)}" for key, value in attrs.items())
        self.lines.append(
            f"{heads} = {op} {', '.join(operands)}" + (f" {{ {body} }}" if body else "")
        )
        self.wanted |= dict(zip(names, results))
        self.rtol |= dict.fromkeys(names, rtol)
        self.what |= dict.fromkeys(names, f"{what}: {self.lines[-1]}")


def as_list(result) -> list[torch.Tensor]:
    items = list(result) if isinstance(result, (list, tuple)) else [result]
    return [torch.as_tensor(item) for item in items if item is not None]


def leaves_of(tensors, gradient: bool) -> dict[int, torch.Tensor]:
    """The floats among them as tensors to derive by, by the identity of what they stand for."""
    return {
        id(t): t.detach().clone().requires_grad_(gradient)
        for t in tensors
        if isinstance(t, torch.Tensor) and t.is_floating_point()
    }


def add(program: Program, test: Case) -> None:
    leaves = leaves_of(test.args, test.gradient)
    args = tuple(leaves.get(id(a), a) for a in test.args)
    results = as_list(test.op(*args, **test.kwargs))
    bound = bind(test.op, args, test.kwargs)
    compare(program, str(test.op), bound.ins, bound.attrs, results[: test.values], test)


def add_composed(program: Program, test: Composed) -> None:
    leaves = leaves_of(test.tensors, test.gradient)
    args = [leaves.get(id(t), t) for t in test.tensors]
    compare(program, test.row, args, test.attrs, as_list(test.function(*args)), test)


def compare(program: Program, name: str, ins: list, attrs: dict, results: list, test) -> None:
    """Asks for the results of a call, and for the gradients by the floats among its operands."""
    rtol = getattr(test, "rtol", 1e-8)
    operands = [program.operand(value) for value in ins]
    program.call(name, operands, attrs, results, name, rtol)
    smooth = [r for r in results if r.requires_grad]
    if not smooth:
        return
    cotangents = [torch.randn_like(r) for r in smooth]
    tensors = [v for v in ins if isinstance(v, torch.Tensor)]
    names = dict(zip(map(id, tensors), test.names.split()))
    wanted = [t for t in tensors if t.requires_grad and id(t) in names]
    gradients = torch.autograd.grad(smooth, wanted, cotangents, allow_unused=True)
    flows = [program.operand(c) for c in cotangents]
    first = f"[{', '.join(flows)}]" if len(results) > 1 else flows[0]
    for tensor, gradient in zip(wanted, gradients):
        if gradient is not None:
            program.call(
                f"vjp.{name}.{names[id(tensor)]}",
                [first, *operands],
                attrs,
                [gradient],
                "gradient",
                rtol,
            )


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ops")
    program = Program(folder)
    for test in all_cases() + tensor_cases():
        add(program, test)
    for test in composed():
        add_composed(program, test)
    head = ["trace { mode = local }", "mesh m { tp = 1 }"]
    file = folder / "ops.spmd"
    file.write_text("\n".join(head + list(program.inputs.values()) + program.lines) + "\n")
    done = subprocess.run([RUNNER, file, folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program, done.stdout


def difference(found: np.ndarray, wanted: np.ndarray, rtol: float) -> str | None:
    if found.shape != wanted.shape:
        return f"is of shape {found.shape} and not {wanted.shape}"
    close = np.isclose(found, wanted, rtol=rtol, atol=1e-10, equal_nan=True)
    if close.all():
        return None
    place = tuple(int(i) for i in np.argwhere(~close)[0])
    return f"differs at {place}: {found[place]} and not {wanted[place]}"


def test_results_and_gradients(ran):
    program, output = ran
    wrong = []
    for line in output.splitlines():
        name, _, why = line.partition(": ")
        wrong.append(f"{program.what.get(name, name)}\n    {why}")
    failed = {line.partition(": ")[0] for line in output.splitlines()}
    for name, wanted in program.wanted.items():
        file = program.folder / f"{name}.npy"
        if name in failed or not file.exists():
            continue
        if why := difference(np.load(file), wanted.detach().numpy(force=True), program.rtol[name]):
            wrong.append(f"{program.what[name]}\n    {why}")
    assert not wrong, f"{len(wrong)} of {len(program.wanted)}\n" + "\n".join(wrong)


def test_every_row_is_compared(ran):
    program, _ = ran
    rows = subprocess.run([RUNNER, "--rows"], capture_output=True, text=True, check=True).stdout
    seen = {line.split()[1] for line in (program.folder / "rows.txt").read_text().splitlines()}
    assert set(rows.split()) - seen == NOT_IN_TORCH
