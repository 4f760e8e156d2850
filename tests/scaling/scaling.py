"""Holds the time per piece of a program against that of one four times as large: SPMDLINT [SPMDRUN]
[--only NAME] [--all]. What is near-linear takes about four times as long, what is quadratic sixteen
times; both are timed in one run, and only their ratio counts. A shape starts small and grows until
the larger one takes long enough to be timed."""

import os
import resource
import subprocess
import sys
import tempfile

from shapes import ARGUMENTS, SHAPES

FIRST = 2000  # pieces
MOST = 64000
LONG = 0.25  # seconds of the larger one that can be told from noise
RATIO = 8.5  # of the two; near-linear is about 4
TOO_LONG = 30  # seconds: it is given up


def seconds(binary, arguments, path):
    """Processor time of one run; the best of up to three if it is short. None: it ended as no run
    may."""
    best = None
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [binary, *arguments, path],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (TOO_LONG, TOO_LONG)),
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode not in (0, 1):
            return None, done.stderr.decode(errors="replace").strip()[
                :200
            ] or f"exit code {done.returncode}"
        took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        best = took if best is None else min(best, took)
        if best > 1:
            break
    return best, ""


def judge(binary, name, folder):
    """Empty, or what is wrong with a shape."""
    path = os.path.join(folder, "program.spmd")
    arguments = ARGUMENTS.get(name, ["check", "--format=full", "--max-findings=50"])

    def timed(n):
        with open(path, "wb") as out:
            out.write(SHAPES[name](n))
        return seconds(binary, arguments, path)

    n = FIRST
    small, problem = timed(n)
    while small is not None:
        large, problem = timed(4 * n)
        if large is None:
            break
        if large >= LONG or 4 * n > MOST:
            ratio = large / max(small, 0.005)
            print(f"  {name:28} {n:6} {small:7.2f} s   {4 * n:6} {large:7.2f} s   {ratio:5.1f}")
            return (
                f"{4 * n} pieces take {ratio:.1f} times as long as {n}"
                if large >= LONG and ratio > RATIO
                else ""
            )
        n, small = 4 * n, large
    return f"{n} pieces: {problem}"


def main():
    words = sys.argv[1:]
    binary = os.path.abspath(words[0])
    names = [word for word in words[1:] if word in SHAPES] or list(SHAPES)
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            problem = judge(binary, name, folder)
            if problem:  # a machine that does something else at the moment
                problem = judge(binary, name, folder)
            if problem:
                wrong.append(f"{name}: {problem}")
    for line in wrong:
        print(line)
    print(f"{len(names) - len(wrong)} passed, {len(wrong)} failed")
    return len(wrong) > 0


if __name__ == "__main__":
    sys.exit(main())
