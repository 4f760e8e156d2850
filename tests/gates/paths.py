# Gate over READMEs and docs: a source that they name exists. `walk/walk.cc`, `placement.*`,
# `blocks/*.cc` are looked for at the end of a path, from any folder on. Sources and traces lie in
# folders: at the top level they were left there by mistake.
import fnmatch
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = "ir|rules|checker|runtime|exporters|spmd_trace|tests"
NAMED = re.compile(
    rf"(?<![\w/.-])((?:{FOLDERS})/[\w/-]+(?:\*|\.\*|\.\w+))|`((?:[\w-]+/)*[\w-]+\.(?:cc|h|cu|\*))`"
)
LOOSE = {".py", ".cc", ".h", ".cu", ".spmd", ".json", ".log"}
EXTENDING = "docs/extending.md"  # the files of its exercises are to be made


def tracked():
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return listed.stdout.splitlines()


def missing(files):
    for page in (path for path in files if path.endswith(".md") and path != EXTENDING):
        for number, line in enumerate((ROOT / page).read_text(encoding="utf-8").splitlines(), 1):
            for name in ("".join(pair) for pair in NAMED.findall(line)):
                if not any(fnmatch.fnmatch("/" + path, "*/" + name) for path in files):
                    yield f"{page}:{number}: names {name}, which is no file"


def loose(files):
    for path in map(pathlib.PurePosixPath, files):
        if len(path.parts) == 1 and path.suffix in LOOSE:
            yield f"{path}: belongs into a folder"


try:
    files = tracked()
    found = [*missing(files), *loose(files)]
except (OSError, subprocess.CalledProcessError):
    print("no Git: nothing was looked at")
    sys.exit(77)
print("\n".join(found) or "paths: all sources that READMEs name are there, none at the top level")
sys.exit(bool(found))
