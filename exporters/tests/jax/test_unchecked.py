"""shard_maps with check_vma=False: right programs have no findings, mistakes have some, and eight
devices agree on which programs are right."""

import json
import os
import pathlib
import re

import of_one_jax  # noqa: F401  what is inferred is of one version
import pytest
import unchecked_programs as programs

from spmd_trace.checker import output

README = pathlib.Path(__file__).parents[2] / "spmd_trace" / "jax" / "README.md"

needs_checker = pytest.mark.skipif(
    "SPMDLINT" not in os.environ, reason="SPMDLINT does not name a checker"
)
takes_minutes = pytest.mark.skipif(
    not os.environ.get("SPMD_TEST_ALL"), reason="takes minutes: SPMD_TEST_ALL=1 runs it"
)


@pytest.fixture(scope="module")
def findings(tmp_path_factory):
    """The findings of all programs, by name."""
    folder = tmp_path_factory.mktemp("traces")
    names = [*programs.NAMES, *programs.MISTAKES]
    for name in names:
        (folder / f"{name}.spmd.json").write_text(programs.recorded(name, folder))
    paths = [folder / f"{name}.spmd.json" for name in names]
    options = ["--isolated", "--format=json", "--no-fixes", "--max-findings=100000"]
    report = json.loads(output([os.environ["SPMDLINT"], "check", *options, *paths]))
    assert not [one["errors"] for one in report["inputs"] if one["errors"]]
    found = {name: [] for name in names}
    for one in report["findings"]:
        found[names[one["input"]]].append(one)
    return found


@needs_checker
@pytest.mark.parametrize("name", programs.NAMES)
def test_right_programs_have_no_findings(name, findings):
    assert findings[name] == []


@needs_checker
@pytest.mark.parametrize("name", programs.MISTAKES)
def test_mistakes_are_found_in_the_script(name, findings):
    if "silent" in programs.MISTAKES[name]:
        assert findings[name] == [], "it is found: take out why it is not"
        return
    assert f"{name}.py" in json.dumps(findings[name])


@needs_checker
def test_table(findings):
    """The table of the README says how many are found."""
    for name in programs.NAMES:
        mistakes = [one for one in programs.MISTAKES if one.partition(".")[0] == name]
        found = sum(bool(findings[one]) for one in mistakes)
        assert re.search(rf"\| `{name}` \|.*\| {found} of {len(mistakes)} \|", README.read_text())


@takes_minutes
@pytest.mark.parametrize("name", programs.NAMES)
def test_right_programs_are_right(name, tmp_path):
    assert programs.error(name, tmp_path) < 1e-4


@takes_minutes
@pytest.mark.parametrize("name", programs.MISTAKES)
def test_mistakes_are_wrong(name, tmp_path):
    assert programs.error(name, tmp_path) > 1e-3
