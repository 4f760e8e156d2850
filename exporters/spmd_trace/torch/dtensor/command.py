"""Records what DTensor does with operations, and compares it with the checker.

spmd-trace dtensor -o decisions.json --checker build/checker/spmdlint
"""

import argparse
import pathlib


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True, metavar="FILE")
    parser.add_argument("--case", action="append", metavar="NAME", help="only that one; repeatable")
    parser.add_argument("--checker", metavar="PATH", help="compare with what this spmdlint says")


def run(parser: argparse.ArgumentParser, options) -> int:
    from .cases import cases
    from .record import counts, dumps, recording

    if unknown := {*(options.case or [])} - {case.name for case in cases()}:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    recorded = recording(options.case)
    options.output.write_text(dumps(recorded), encoding="utf-8")
    summary = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts(recorded).items()))
    print(f"{options.output}: {len(recorded['rows'])} decisions ({summary})")
    if options.checker:
        _compare(recorded, options.checker)
    return 0


def _compare(recorded: dict, checker: str) -> None:
    from . import comparison, verdicts

    found = comparison.differences(recorded, verdicts.judged(recorded, checker))
    print(comparison.summary(recorded, found))
    for (kind, sign, case), count in comparison.families(found):
        print(f"  {kind} {sign}: {case} ({count})")
