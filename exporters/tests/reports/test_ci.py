"""The GitHub action, the GitLab job and the pre-commit hook run here, as far as they go without
their servers."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree

import pytest

from conftest import LINT, ROOT

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")


@pytest.fixture
def project(tmp_path):
    """A folder with a trace that has a finding, and a `spmdlint` on the path."""
    (tmp_path / "traces").mkdir()
    shutil.copy(ROOT / "tests/cases/cli/partial.spmd", tmp_path / "traces")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/spmdlint").symlink_to(pathlib.Path(LINT).resolve())
    return tmp_path


def run(script, project, **env):
    path = f"{project}/bin:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": path, **env},
    )


def test_action(project):
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    given = {name: row["default"] for name, row in action["inputs"].items()} | {
        "traces": "traces",
        "args": "--no-fixes",
    }
    for step in action["runs"]["steps"]:
        env = {
            name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda m: given[m[1]], value)
            for name, value in step["env"].items()
        }
        assert all("${{ inputs" not in value for value in env.values())
        done = run(step["run"], project, GITHUB_STEP_SUMMARY=str(project / "summary.md"), **env)
    assert done.returncode == 1 and done.stdout.startswith(
        "::error file=traces/partial.spmd,line=7"
    ), done
    assert (project / "summary.md").read_text().startswith("### ")
    assert (project / given["sarif"]).exists() and (project / given["html"]).exists()


def test_action_takes_a_script(project):
    """With options of the check and of the recorder in front of it."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    (project / "bin/spmd-trace").write_text('#!/bin/sh\nfor each; do echo "$each"; done\nexit 1\n')
    (project / "bin/spmd-trace").chmod(0o755)
    given = {"SCRIPT": "--nproc-per-node=4 train.py --lr 1", "ARGS": "--min-proof=100"}
    files = {"GITHUB_STEP_SUMMARY": "a b.md", "SARIF": "a.sarif", "HTML": "a.html", "TRACES": "."}
    done = run(action["runs"]["steps"][1]["run"], project, **given, **files)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "lint", "--format=github", "--format=md:a b.md", "--format=sarif:a.sarif",
        "--format=html:a.html", "--min-proof=100", "--nproc-per-node=4", "train.py", "--lr", "1",
    ]  # fmt: skip


def test_action_installs_a_wheel_where_nothing_is(project):
    """The one that is given; else what `./dev wheel` of the action's tree prints last."""
    install = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"][0]["run"]
    (project / "bin/spmdlint").unlink()
    for name, text in (
        ("bin/python3", 'echo "$@" >called'),
        ("dev", 'echo building; echo "made.whl"'),
    ):
        (project / name).write_text(f"#!/bin/sh\n{text}\n")
        (project / name).chmod(0o755)
    for given, installed in (("tools/a.whl", "tools/a.whl"), ("", "made.whl")):
        path = f"{project}/bin:/usr/bin:/bin"
        done = run(install, project, WHEEL=given, ACTION=str(project), PATH=path)
        assert done.returncode == 0, done.stderr
        assert (project / "called").read_text() == f"-m pip install {installed}\n"


def test_gitlab_job(project):
    job = yaml.safe_load((ROOT / "docs/gitlab-ci.yml").read_text())["spmdlint"]
    done = run("\n".join(job["script"]), project, **job["variables"])
    assert done.returncode == 1 and "partial-into-nonlinear" in done.stdout, done
    for name in (job["artifacts"]["reports"]["codequality"], *job["artifacts"]["paths"]):
        assert (project / name).stat().st_size > 0
    xml.etree.ElementTree.parse(project / job["artifacts"]["reports"]["junit"])


def test_hook(project):
    """By the rules of the hook: files that it is for, each as an argument."""
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    for hook in hooks:
        files = [
            name
            for name in (
                "traces/partial.spmd",
                "a.spmd.json",
                "b.spmd.jsonl",
                "c.spmd.json.gz",
                "d.spmd.zst",
                "model.py",
                "a.spmd.txt",
                "b.json.gz",
            )
            if re.search(hook["files"], name)
        ]
        assert files == [
            "traces/partial.spmd", "a.spmd.json", "b.spmd.jsonl", "c.spmd.json.gz", "d.spmd.zst",
        ]  # fmt: skip
        done = run(f"{hook['entry']} traces/partial.spmd", project)
        assert done.returncode == 1 and "error[partial-into-nonlinear]" in done.stdout


# Beside the Python of the tests, or on the path.
PRE_COMMIT = shutil.which(
    "pre-commit", path=str(pathlib.Path(sys.executable).parent)
) or shutil.which("pre-commit")


@pytest.mark.skipif(not PRE_COMMIT, reason="pre-commit is not installed")
def test_pre_commit(project):
    run("git init -q . && git add traces", project)
    done = run(f"{PRE_COMMIT} try-repo {ROOT} spmdlint-system --files traces/partial.spmd", project)
    assert done.returncode == 1 and "error[partial-into-nonlinear]" in done.stdout, done
