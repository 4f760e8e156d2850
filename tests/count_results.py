# Adds up what the test runners reported and prints the closing line `N passed, N failed, N
# skipped`. Reads the test log of meson (one JSON object a line) and logs of pytest; a runner that
# ended without a count is one test, passed or failed by its exit code. Exit code 1 if anything
# failed.
import json
import os
import re
import sys

SKIPPED = 77


def counts_of_text(text):
    """Passed, failed, skipped as the last count in a runner's output says; None if there is
    none."""
    found = None
    for line in text.splitlines():
        line = re.sub(r"\x1b\[[0-9;]*m", "", line)
        if match := re.match(r"All tests passed \(.* in (\d+) test cases?\)", line):
            found = [int(match[1]), 0, 0]
        elif line.startswith("test cases:"):
            found = counts_of_words(line)
        elif re.match(r"(=+ )?\d+ (passed|failed|skipped|errors?|warnings?|deselected)\b", line):
            found = counts_of_words(line)
        elif re.match(r"(=+ )?no tests ran", line, re.IGNORECASE):
            found = [0, 0, 0]
    return found


def counts_of_words(line):
    """`3 passed, 1 error` of pytest and the file tests, `5 | 4 passed | 1 failed` of Catch2."""

    def number(words):
        return sum(int(n) for n in re.findall(rf"(\d+) (?:{words})\b", line))

    return [
        number("passed|xpassed|failed as expected"),
        number("failed(?! as expected)|errors?"),
        number("skipped|xfailed"),
    ]


def counts_of_run(text, code):
    if code == SKIPPED:
        return [0, 0, 1]
    counts = counts_of_text(text) or [1 if code == 0 else 0, 0, 0]
    if code != 0 and counts[1] == 0:
        counts[1] = 1
    return counts


def runs_of_meson(path):
    with open(path, encoding="utf-8") as log:
        for line in log:
            run = json.loads(line)
            yield run["name"], run.get("stdout", ""), run["returncode"]


def run_of_pytest(path):
    with open(path, encoding="utf-8") as log:
        text = log.read()
    code = re.search(r"^exit status (\d+)$", text, re.MULTILINE)
    name = re.search(r"pytest-(\w+)", os.path.basename(path))
    return f"exporters/{name[1]}" if name else "exporters", text, int(code[1]) if code else 1


def main(meson_log, *pytest_logs):
    runs = [*runs_of_meson(meson_log), *map(run_of_pytest, pytest_logs)]
    total = [0, 0, 0]
    for name, text, code in runs:
        counts = counts_of_run(text, code)
        total = [a + b for a, b in zip(total, counts)]
        print(f"  {name}: {counts[0]} passed, {counts[1]} failed, {counts[2]} skipped")
    print("{} passed, {} failed, {} skipped".format(*total))
    return 1 if total[1] or not runs else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
