"""Records what DTensor does with operations, and compares it with the checker.

python -m spmd_trace.dtensor -o decisions.json --checker build/checker/spmdlint
"""

import argparse
import logging
import pathlib
import sys
import warnings


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m spmd_trace.dtensor",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True, metavar="FILE")
    parser.add_argument("--case", action="append", metavar="NAME", help="only that one; repeatable")
    parser.add_argument("--checker", metavar="PATH", help="compare with what this spmdlint says")
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    from .cases import cases
    from .record import counts, dumps, recording

    if unknown := {*(options.case or [])} - {case.name for case in cases()}:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    recorded = recording(options.case)
    options.output.write_text(dumps(recorded), encoding="utf-8")
    told = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts(recorded).items()))
    print(f"{options.output}: {len(recorded['rows'])} decisions ({told})")
    if options.checker:
        _compare(recorded, options.checker)
    return 0


def _compare(recorded: dict, checker: str) -> None:
    from . import comparison, verdicts

    found = comparison.differences(recorded, verdicts.judged(recorded, checker))
    print(comparison.summary(recorded, found))
    for (kind, sign, case), count in comparison.families(found):
        print(f"  {kind} {sign}: {case} ({count})")


if __name__ == "__main__":
    sys.exit(main())
