"""Long lists at the borders of what narrow numbers count: SPMDLINT. Whatever a list of 254 members
means, one of 255, 256, 257, 65 535, 65 536 and 70 000 means too, in text and in JSON; what has a
limit says so."""

import json
import os
import subprocess
import sys
import tempfile

from shapes import SHAPES

SIZES = [254, 255, 256, 257, 65535, 65536, 70000]
# Shapes whose size is the length of one list, the number of entries of one table, or the length of
# one name.
LISTS = [
    "operands",
    "distinct_operands",
    "sharded_operands",
    "stacked_operands",
    "partial_operands",
    "results",
    "each_operands",
    "coalesced_operands",
    "attributes",
    "listed_numbers",
    "one_long_statement",
    "rotating_carries",
    "functions",
    "calls",
    "opaque_functions",
    "regions",
    "with_blocks",
    "symbols",
    "sum_of_symbols",
    "meshes",
    "groups",
    "listed_groups",
    "suppressions",
    "ignores",
    "rules",
    "unknown_ops",
    "params",
    "outputs",
    "locations",
    "files",
    "findings",
    "uneven_blocks",
    "views",
    "writes",
    "erased",
    "long_name",
    "loops",
    "mixed_operands",
    "scales_of_symbols",
    "sums_of_symbols_compared",
    "distinct_shapes",
]
LIMITED = {"trace-limit"}
SECONDS = 60


def check(binary, path):
    """The exit code, and the words of what was found; an ending that is not documented is a
    failure."""
    try:
        done = subprocess.run(
            [binary, "check", "--format=json", "--max-findings=3", "--no-fixes", path],
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, [f"no end within {SECONDS} s"]
    if done.returncode not in (0, 1, 3):
        return done.returncode, [done.stderr.decode(errors="replace")[:200]]
    report = json.loads(done.stdout)
    if done.returncode == 3:
        names = {
            line.split("error[")[1].split("]")[0]
            for line in done.stderr.decode().splitlines()
            if "error[" in line
        }
        return 3, sorted(names)
    return done.returncode, sorted({finding["name"] for finding in report["findings"]})


def main():
    binary = os.path.abspath(sys.argv[1])
    names = sys.argv[2:] or LISTS
    wrong, tried = [], 0
    with tempfile.TemporaryDirectory() as folder:
        text, document = os.path.join(folder, "p.spmd"), os.path.join(folder, "p.spmd.json")
        for name in names:
            usual = None
            for size in SIZES:
                with open(text, "wb") as out:
                    out.write(SHAPES[name](size))
                found = check(binary, text)
                usual = usual or found
                tried += 1
                limited = found[0] == 3 and set(found[1]) <= LIMITED
                if found != usual and not limited:
                    wrong.append(f"{name} of {size}: {found}, of {SIZES[0]}: {usual}")
                    continue
                if limited:
                    continue
                subprocess.run(
                    [binary, "fmt", "--to=json", "-o", document, text],
                    check=False,
                    timeout=SECONDS,
                    capture_output=True,
                )
                if check(binary, document) != found:
                    wrong.append(
                        f"{name} of {size}, in JSON: {check(binary, document)}, in text: {found}"
                    )
    for line in wrong:
        print(line)
    print(f"{tried - len(wrong)} passed, {len(wrong)} failed")
    return len(wrong) > 0


if __name__ == "__main__":
    sys.exit(main())
