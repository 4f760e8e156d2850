"""The command `spmd-trace`.

Each command lies in a module of its own, which is imported when it is asked for: it may need torch
or JAX, and the others do not.
"""

import argparse
import importlib
import logging
import sys
import warnings

# The module of each command has `add_options(parser)` and `run(parser, options)`, which returns the
# exit code.
_COMMANDS = {
    "record": ("spmd_trace.record", "record a step of a training script"),
    "lint": ("spmd_trace.lint", "record a step of a training script and check it"),
    "import": (
        "spmd_trace.importing",
        "make a trace of a graph of torch, or of a module of StableHLO",
    ),
    "bundled": ("spmd_trace.torch.bundled", "record a step of Megatron-Core or torchtitan"),
    "examples": ("spmd_trace.examples", "record the traces of a folder of examples again"),
    "dtensor": ("spmd_trace.torch.dtensor.command", "record DTensor's decisions, and compare"),
}


def _usage() -> str:
    rows = "\n".join(f"  {name:10} {says}" for name, (_, says) in _COMMANDS.items())
    return (
        "usage: spmd-trace COMMAND [ARGUMENT...]\n\n"
        "Records training programs as traces for spmdlint, "
        f"without a GPU.\n\n{rows}\n\n`spmd-trace COMMAND --help` lists the options of a command.\n"
    )


def main(arguments: list[str] | None = None) -> int:
    name, *words = (sys.argv[1:] if arguments is None else arguments) or [""]
    if name not in _COMMANDS:
        asked = name in ("-h", "--help")
        said = "" if asked or not name else f"spmd-trace: unknown command: {name}\n\n"
        print(said + _usage(), end="", file=sys.stdout if asked else sys.stderr)
        return 0 if asked else 2
    # Frameworks warn about the accelerators and fused kernels that a recording does without.
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    module = importlib.import_module(_COMMANDS[name][0])
    parser = argparse.ArgumentParser(
        prog=f"spmd-trace {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_options(parser)
    if name == "lint":  # what it does not know are options of the checker
        options, more = parser.parse_known_args(words)
        return module.run(parser, options, more)
    return module.run(parser, parser.parse_args(words))
