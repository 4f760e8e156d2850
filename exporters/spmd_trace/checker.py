"""The checker as a program: where it lies, and what it prints."""

import os
import pathlib
import shutil
import subprocess
import sys


def missing() -> str:
    """Why `find` has found nothing."""
    if named := os.environ.get("SPMDLINT"):
        return f"SPMDLINT names {named}, which is no program"
    return (
        "spmdlint is neither named by SPMDLINT nor beside the interpreter, on PATH or in "
        "build/checker: build it with `./dev build`"
    )


def find() -> str | None:
    """`spmdlint` as $SPMDLINT names it, beside the interpreter, on PATH, or in a build folder
    above."""
    if named := os.environ.get("SPMDLINT"):
        return named if os.access(named, os.X_OK) else None
    beside = pathlib.Path(sys.executable).with_name("spmdlint")
    if os.access(beside, os.X_OK):
        return str(beside)
    if on_path := shutil.which("spmdlint"):
        return on_path
    here, package = pathlib.Path.cwd(), pathlib.Path(__file__).resolve()
    for folder in [here, *here.parents, *package.parents]:
        built = folder / "build" / "checker" / "spmdlint"
        if os.access(built, os.X_OK):
            return str(built)
    return None


def output(command: list) -> str:
    """What a run of the checker prints; it may end with findings."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{words[1]} ended with {done.returncode}: {done.stderr[:500]}")
    return done.stdout
