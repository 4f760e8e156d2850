"""The signatures by which the checker binds calls of torch: `ir/calls/torch.txt`, written anew.

python -m spmd_trace.torch.signatures -o ir/calls/torch.txt

All operators and functions that the checker knows (it is asked, as SPMDLINT names it). A line `=
NAME...` has the names under which a group of signatures is called; each line below is one of them:
its overload, `-` if it has none, and its parameters. `*` parts off those that are given by name
alone. Types are those of torch's schemas, in fewer words: `number` may stand for a tensor, `_` says
nothing of the program, `any` is unknown, `!` is written in place, a type behind a `*` takes all
that is left. A line `! NAME WORD` is a dtype of torch in the words of a trace.
"""

import argparse
import inspect
import json
import pathlib
import re
import tempfile

from . import cuda_standins

cuda_standins.preload()

import torch  # noqa: E402

from .. import checker  # noqa: E402
from .operands import _DROPPED, _OPERAND_NUMBERS  # noqa: E402
from .values import DTYPES  # noqa: E402

# Where functions of Python stand, and what their operators begin with.
_MODULES = {"torch": "", "torch.Tensor": "", "torch.nn.functional": "", "torch._C._nn": ""}
_MODULES |= {f"torch.{word}": f"{word}_" for word in ("special", "linalg", "fft")}
_TYPES = {"SymInt": "int", "number": "Scalar", "Layout": "int", "MemoryFormat": "int"}
_TYPES |= {"ScalarType": "dtype"}
# What annotations of Python functions say that can be relied on: many take more than they say.
_ANNOTATIONS = {torch.Tensor: "Tensor", torch.dtype: "dtype", list[torch.Tensor]: "Tensor[]"}
# Functions that look at their arguments by themselves.
_TO = "_ non_blocking=False, bool copy=False, *, _ memory_format=None"
_BY_HAND = {
    "torch.einsum": ["- str equation, *Tensor operands"],
    "torch.Tensor.to": [
        f"device Tensor self, _ device=None, dtype? dtype=None, {_TO}",
        f"dtype Tensor self, dtype dtype, {_TO}",
        f"other Tensor self, Tensor other, {_TO}",
    ],
}
_BY_HAND |= dict.fromkeys(
    ["torch.nonzero", "torch.Tensor.nonzero"], ["- Tensor self, *, bool as_tuple=False"]
)


def _parameter(argument, text: str) -> str:
    """One argument of a schema, of which `text` is how torch prints it."""
    kind, name = text.split(" ")[0], argument.name
    kind = re.sub(r"\(\w+!.*?\)", "!", re.sub(r"\(\w+\)", "", kind))
    kind = re.sub(r"^\w+", lambda found: _TYPES.get(found[0], found[0]), kind)
    if kind == "Scalar" and name in _OPERAND_NUMBERS:
        kind = "number"
    if name in _DROPPED:
        kind = "_"
    _, equals, default = text.partition("=")
    return f"{kind} {name}{equals}{default.replace(' ', '')}"


def _of_schema(schema) -> str | None:
    """The parameters of an operator; None where it writes to `out`, which any call may name."""
    if any(one.is_out for one in schema.arguments) or "Dimname" in str(schema):
        return None
    inside = re.match(r"[^(]*\((.*)\) -> ", str(schema))[1]
    texts = [part for part in re.split(r", (?![^\[(]*[\])])", inside) if part]
    arguments, found = iter(schema.arguments), []
    for text in texts:
        found.append(text if text == "*" else _parameter(next(arguments), text))
    if any(one.name == "pin_memory" for one in schema.arguments):
        found.append("_ requires_grad=False")  # Python adds it
    return ", ".join(found)


def _annotated(annotation) -> str:
    """A type that says what a call may be given; `any` where there are several."""
    parts = getattr(annotation, "__args__", ())
    optional = type(None) in parts
    chosen = [one for one in parts if one is not type(None)] if optional else [annotation]
    found = [
        word for known, word in _ANNOTATIONS.items() if len(chosen) == 1 and known == chosen[0]
    ]
    return found[0] + "?" * optional if found else "any"


def _of_function(name: str, function) -> str | None:
    """The parameters of a function of Python."""
    try:
        parameters = list(inspect.signature(function, eval_str=True).parameters.values())
    except (ValueError, TypeError, NameError):
        return None
    if [one.kind for one in parameters] == [
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
    ]:
        # It chooses between two functions by a flag; the simple one says what the others are
        # called.
        simple = getattr(torch.nn.functional, "_" + name.rpartition(".")[2], None)
        return _of_function("", simple) if simple is not None else None
    found, named = [], False
    for one in parameters:
        if one.kind is one.VAR_KEYWORD:
            return None
        kind = "_" if one.name in _DROPPED else _annotated(one.annotation)
        kind = "dtype?" if one.name == "dtype" else kind
        if one.kind is one.VAR_POSITIONAL:
            found.append(f"*{'Tensor' if one.name == 'tensors' else kind} {one.name}")
            named = True
            continue
        if one.kind is one.KEYWORD_ONLY and not named:
            found.append("*")
            named = True
        default = one.default
        if name.startswith("torch.Tensor.") and one.name == "self":
            kind = "Tensor"
        if isinstance(default, str):
            default = f'"{default}"'
        elif default is not one.empty and not isinstance(default, (int, float, type(None))):
            default = None
        text = "" if default is one.empty else f"={default}"
        if one.name != "out":
            found.append(f"{kind} {one.name}{text}")
    return ", ".join(found)


def _owner(path: str):
    found = torch
    for word in path.split(".")[1:]:
        found = getattr(found, word)
    return found


def groups() -> dict[str, list[str]]:
    """By the names of a group, blanks between them: its signatures."""
    operators: dict[str, dict[str, str]] = {}
    for schema in torch._C._jit_get_all_schemas():
        # TorchScript has further ones for lists and numbers.
        if schema.name.startswith("aten::") and torch._C._dispatch_has_kernel(
            f"{schema.name}.{schema.overload_name}".removesuffix(".")
        ):
            text = _of_schema(schema)
            if text is not None:
                operators.setdefault(schema.name[6:], {})[schema.overload_name or "-"] = text
    names = {name: [f"aten.{name}"] for name in operators}
    functions: dict[str, str] = {}
    for module, prefix in _MODULES.items():
        owner = _owner(module)
        for word in sorted(dir(owner)):
            value, name = getattr(owner, word, None), f"{module}.{word}"
            if not callable(value) or isinstance(value, type) or name in _BY_HAND:
                continue
            if inspect.isfunction(value):
                if (text := _of_function(name, value)) is not None:
                    functions[name] = text
            elif prefix + word in operators:
                names[prefix + word].append(name)
    found = {}
    for name, spelled in names.items():
        lines = [
            f"{overload} {text}".rstrip() for overload, text in sorted(operators[name].items())
        ]
        found[" ".join(spelled)] = lines
    return found | {name: [f"- {text}"] for name, text in functions.items() if text} | _BY_HAND


def known(names: list[str]) -> set[str]:
    """Those of the names that the checker knows."""
    program = checker.find()
    if program is None:
        raise SystemExit(checker.missing())
    ops = [{"op": name, "in": []} for name in names]
    axes = [{"name": "dp", "size": 2}]
    trace = {"format": "spmd-trace", "version": "1.0", "meshes": [{"id": "m", "axes": axes}]}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "names.spmd.json"
        path.write_text(json.dumps(trace | {"ops": ops}))
        line = [program, "check", "--format=json", f"--max-findings={2 * len(names)}", path]
        found = json.loads(checker.output(line))["findings"]
    unknown = {one["arguments"]["op"] for one in found if one["name"] == "unknown-op"}
    return set(names) - unknown


def text() -> str:
    """The whole file."""
    every = groups()
    heads = known([name.split(" ")[0] for name in every])
    lines = [
        f"# Signatures of torch {torch.__version__.split('+')[0]}, written by",
        "# exporters/spmd_trace/torch/signatures.py, which says how to read them.",
    ]
    named = [
        (name, one) for name, one in sorted(vars(torch).items()) if isinstance(one, torch.dtype)
    ]
    lines += [f"! {name} {DTYPES[one]}" for name, one in named if one in DTYPES]
    for names, signatures in sorted(every.items()):
        if names.split(" ")[0] in heads:
            lines += ["= " + names, *signatures]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True, metavar="FILE")
    parser.parse_args().output.write_text(text(), encoding="utf-8")
