"""The command line: `python -m spmd_trace.dtensor -o decisions.json`."""

import argparse
import logging
import pathlib
import sys
import warnings


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m spmd_trace.dtensor", description=__doc__)
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True, metavar="FILE")
    parser.add_argument("--case", action="append", metavar="NAME", help="only that one; repeatable")
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    from .record import counts, dumps, recording

    recorded = recording(options.case)
    options.output.write_text(dumps(recorded), encoding="utf-8")
    told = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts(recorded).items()))
    print(f"{options.output}: {len(recorded['rows'])} decisions ({told})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
