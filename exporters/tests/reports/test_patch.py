"""`check --diff` prints patches that git applies, and that repair as many findings as it says."""

import json
import re
import subprocess

import pytest

from conftest import RENDERED, lint

CASES = sorted((RENDERED / "..").glob("checker/**/*.spmd")) + sorted(
    (RENDERED / "..").glob("cli/*.spmd")
)


def errors_and_warnings(path):
    summary = json.loads(lint("--format=json", path).stdout)["summary"]
    return summary["errors"] + summary["warnings"]


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_patch_applies(path, tmp_path):
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    done = lint("--diff", copy.name, cwd=tmp_path)
    said = re.search(r"the patch repairs (\d+) findings? and leaves (\d+)", done.stderr)
    if not said or not done.stdout:
        assert not said or said[1] == "0"
        return
    before = errors_and_warnings(copy)
    subprocess.run(
        ["git", "apply", "-p0", "-"], input=done.stdout, text=True, cwd=tmp_path, check=True
    )
    assert errors_and_warnings(copy) == int(said[2]) <= before - int(said[1])
    assert not lint("--diff", copy.name, cwd=tmp_path).stdout
