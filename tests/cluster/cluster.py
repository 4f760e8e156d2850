"""Runs of `spmdrun` whose ranks are processes: what they compute, how they meet, and how they end
when one of them is killed, stopped, late, of another file or of no memory. A skip says why.

usage: cluster.py SPMDRUN [--devices MODULE] [--repeat N] [--only WORD]
"""

import sys
import time

import device_runs  # noqa: F401
import faults  # noqa: F401
import hosts  # noqa: F401
import meeting  # noqa: F401
import results  # noqa: F401
from harness import OPTIONS, TESTS, Failed


def main():
    failed = passed = skipped = 0
    for each in TESTS:
        if OPTIONS.only not in each.name:
            continue
        if why := each.skip_reason():
            skipped += 1
            print(f"{each.name}: skipped: {why}")
            continue
        for _ in range(OPTIONS.repeat if each.fault else 1):
            begin = time.monotonic()
            try:
                each.call()
                passed += 1
                print(f"{each.name}: {time.monotonic() - begin:.1f} s", flush=True)
            except Failed as failure:
                # The machine may have got other work since it was asked what it can do.
                if why := each.skip_reason():
                    skipped += 1
                    print(f"{each.name}: skipped, failed before: {why}", flush=True)
                    break
                failed += 1
                print(f"{each.name}: FAILED: {failure}", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
