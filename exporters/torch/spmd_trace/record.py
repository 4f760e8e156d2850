"""The command line: records a program that comes with the package.

python -m spmd_trace.record megatron --sequence-parallel -o sp.spmd.json
"""

import argparse
import logging
import pathlib
import sys
import warnings


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m spmd_trace.record", description=__doc__)
    parser.add_argument("program", choices=["megatron"], help="the program to record")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True, metavar="FILE")
    parser.add_argument("--sequence-parallel", action="store_true")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--bug", metavar="NAME", help="plant a mistake, see programs/megatron_bugs")
    options = parser.parse_args(arguments)

    # Frameworks warn about the accelerators and fused kernels that a recording does without.
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    from . import dumps
    from .programs import megatron_bugs, megatron_gpt

    if options.bug is not None and options.bug not in megatron_bugs.BUGS:
        parser.error(f"unknown bug {options.bug}: one of {', '.join(megatron_bugs.BUGS)}")
    config = megatron_gpt.Config(sequence_parallel=options.sequence_parallel, layers=options.layers)
    program = megatron_gpt.record(config, options.bug)
    options.output.write_text(dumps(program), encoding="utf-8")
    print(f"{options.output}: {len(program.ops)} operations")
    return 0


if __name__ == "__main__":
    sys.exit(main())
