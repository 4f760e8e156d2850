"""Makes a trace of a program that is a graph already: a file of torch.export or torch.fx, or a
module of StableHLO.

spmd-trace import model.pt2 --mesh dp=2,tp=4 --type 'layers.*.weight:tp=S(0)' -o model.spmd.json
spmd-trace import graph.pt --mesh tp=2 --input 'f32[8,16]' --group 0=tp
spmd-trace import jit_train_step.mlir -o step.spmd.json

A graph of torch is what one rank runs, and its shapes are those of one rank. It says nothing of
the mesh and of types: these are options. What they leave out is unknown. A saved GraphModule is a
pickle: reading one runs code that it names.

A module, which JAX writes, is StableHLO with the meshes and shardings of Shardy: as text, as
bytecode, or as what jax.export has serialized. It takes no options.
"""

import argparse
import pathlib
import re
import sys


def _mesh(text: str) -> dict[str, int]:
    if not re.fullmatch(r"\w+=[1-9]\d*(,\w+=[1-9]\d*)*", text):
        raise argparse.ArgumentTypeError(f"{text}: a mesh is AXIS=SIZE,AXIS=SIZE, outermost first")
    return {name: int(size) for name, size in (part.split("=") for part in text.split(","))}


def _type(text: str) -> tuple[str, dict[str, str]]:
    name, _, kinds = text.rpartition(":")
    if not name or not re.fullmatch(r"\w+=[^=,]+(,\w+=[^=,]+)*", kinds):
        raise argparse.ArgumentTypeError(f"{text}: a type is NAME:AXIS=KIND,AXIS=KIND")
    return name, dict(part.split("=") for part in kinds.split(","))


def _group(text: str) -> tuple[str, list[str]]:
    name, _, axes = text.rpartition("=")
    if not name or not axes:
        raise argparse.ArgumentTypeError(f"{text}: a group is NAME=AXIS,AXIS")
    return name, axes.split(",")


def _sync(text: str) -> tuple[str, str]:
    axis, _, how = text.partition("=")
    if not axis or how not in ("", "sum", "avg"):
        raise argparse.ArgumentTypeError(f"{text}: a reduction is AXIS or AXIS=avg")
    return axis, how or "sum"


def _input(text: str):
    from .torch.graphs import example_input

    return example_input(text)


def add_options(parser: argparse.ArgumentParser) -> None:
    several = {"action": "append", "default": []}
    parser.add_argument(
        "file", type=pathlib.Path,
        help="a .pt2 archive, a saved GraphModule, a module of StableHLO, or of jax.export",
    )  # fmt: skip
    parser.add_argument("--mesh", type=_mesh, metavar="AXIS=SIZE,...")
    parser.add_argument(
        "--type", type=_type, metavar="NAME:AXIS=KIND,...", **several,
        help="of inputs, parameters, buffers: R, I, V, P, S(0), ...; NAME may be a pattern",
    )  # fmt: skip
    parser.add_argument(
        "--group", type=_group, metavar="NAME=AXIS", help="the axes of a process group", **several
    )
    parser.add_argument(
        "--sync", type=_sync, metavar="AXIS[=avg]", **several,
        help="of a graph with its backward: gradients are reduced outside of it along this axis",
    )  # fmt: skip
    parser.add_argument(
        "--input", type=_input, metavar="DTYPE[SIZE,...]", action="append",
        help="of a graph without shapes: what its inputs are, in their order",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", type=pathlib.Path, metavar="FILE", default=pathlib.Path("graph.spmd.json")
    )


def run(parser: argparse.ArgumentParser, options) -> int:
    if not options.file.is_file():
        parser.error(f"{options.file}: no such file")
    of_torch = options.file.suffix == ".pt2" or _start(options.file) in _OF_TORCH
    if of_torch or options.mesh or options.type or options.group or options.input or options.sync:
        from .torch import graphs

        return graphs.run(parser, options)
    return _module(parser, options)


_OF_TORCH = (b"PK", b"\x80\x02", b"\x80\x04", b"\x80\x05")  # archives and pickles


def _start(path: pathlib.Path) -> bytes:
    with path.open("rb") as file:
        return file.read(2)


def _module(parser: argparse.ArgumentParser, options) -> int:
    from .jax import Unrecordable, dumps
    from .jax.stablehlo.module import record_module

    try:
        program, single = record_module(options.file.read_bytes())
    except Unrecordable as error:
        parser.error(f"{options.file}: {error}")
    options.output.write_text(dumps(program), encoding="utf-8")
    if single:
        axes = " and ".join(single)
        said = f"ranks of {axes} have blocks of one element, which look like what is stretched"
        advice = "dump the module with fewer ranks there, else findings there may be wrong"
        print(f"spmd-trace: {said} over a dimension: {advice}", file=sys.stderr)
    print(f"{options.output}: {len(program.main.ops)} operations")
    return 0
