"""Every program of the tests and examples that checks is run, and what it claims must be true of
the data. Recorded programs run with extents as small as they may be, others as they are and so:
what follows from smaller extents may be refused, but is no finding. Then each program is run with
copies of its instructions whose results nobody names, as recorders write what a program takes to
its host: whatever becomes of it, nothing may crash.

usage: upheld.py SPMDRUN FOLDER|TRACE...
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

WRONG = re.compile(r"error\[(?:[a-z-]*refuted|replicas-drift)\].*|.*Sanitizer.*")

MADE = re.compile(r"^(\s*)%[^={]* = (?!input|param|const|opt_state|buffer)(.*[^{\s])\s*$")


def with_unread_copies(text):
    """Each line that defines results, and again without them."""
    lines = []
    for line in text.splitlines():
        lines.append(line)
        if made := MADE.match(line.partition(" //")[0]):
            lines.append(made[1] + made[2])
    return "\n".join(lines) + "\n"


def check_by_running(spmdrun, *words):
    """Its exit code, and what it prints."""
    done = subprocess.run(
        [spmdrun, "--tier=field", "--format=concise", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def crash_of_unread_copies(spmdrun, path):
    with tempfile.NamedTemporaryFile("w", suffix=".spmd") as copies:
        copies.write(with_unread_copies(path.read_text(encoding="utf-8")))
        copies.flush()
        code, said = check_by_running(spmdrun, copies.name)
    crashed = code not in (0, 1, 2, 3, 4) or "Sanitizer" in said
    return f"with unread copies: exit {code}: {said[-300:]}" if crashed else ""


def fault_of_small_extents(spmdrun, path):
    code, said = check_by_running(spmdrun, "--scale-down", path)
    wrong = WRONG.search(said)
    if wrong or code not in (0, 2, 3, 4):
        return f"--scale-down: {wrong.group(0) if wrong else said[-300:]}"
    return ""


def run(spmdrun, path):
    """What is wrong, or why nothing was run; empty strings where the claims are upheld."""
    recorded = path.suffix == ".json"
    options = ["--scale-down"] if recorded else []
    code, said = check_by_running(spmdrun, "--check=all", *options, path)
    wrong = WRONG.search(said)
    if wrong:
        return wrong.group(0), ""
    if code == 0:
        return "", ""
    if recorded:
        return f"exit {code}: {said[-300:]}", ""
    if code == 1:
        return "", "does not check"
    if code in (2, 3, 4):
        return "", said.strip().splitlines()[0]
    return f"exit {code}: {said[-300:]}", ""


def main():
    spmdrun, *named = sys.argv[1:]
    paths = []
    for path in map(pathlib.Path, named):
        paths += sorted(path.rglob("*.spmd")) if path.is_dir() else [path]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        verdicts = list(pool.map(lambda path: run(spmdrun, path), paths))
        texts = [path for path in paths if path.suffix == ".spmd"]
        crashes = list(pool.map(lambda path: crash_of_unread_copies(spmdrun, path), texts))
        run_as_they_are = [p for p, v in zip(paths, verdicts) if v == ("", "") and p in texts]
        small = list(pool.map(lambda path: fault_of_small_extents(spmdrun, path), run_as_they_are))
    upheld = sum(verdict == ("", "") for verdict in verdicts)
    failures = [(path, wrong) for path, (wrong, _) in zip(paths, verdicts) if wrong]
    failures += [(path, crash) for path, crash in zip(texts, crashes) if crash]
    failures += [(path, fault) for path, fault in zip(run_as_they_are, small) if fault]
    for path, (_, why) in zip(paths, verdicts):
        if why and why != "does not check":
            print(f"not run: {why}")
    for path, wrong in failures:
        print(f"{path}: {wrong}")
    print(f"{upheld} passed, {len(failures)} failed")
    return 1 if failures or not upheld else 0


if __name__ == "__main__":
    sys.exit(main())
