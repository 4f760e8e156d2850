"""The scripts of examples/jax/scripts: right ones have no findings, mistakes have some, and eight
devices agree on which are right. A sample of them, unless SPMD_TEST_ALL is set.
"""

import json
import os
import pathlib
import re

import of_one_jax  # noqa: F401  what is inferred is of one version
import pytest
import script_programs as programs

from spmd_trace.checker import output

README = pathlib.Path(__file__).parents[2] / "spmd_trace" / "jax" / "README.md"
ALL = bool(os.environ.get("SPMD_TEST_ALL"))
NAMES = [one for one in programs.NAMES[:: 1 if ALL else 4] if not programs.missing_libraries(one)]
MISTAKES = [one for one in programs.MISTAKES if one.partition(".")[0] in NAMES]

needs_checker = pytest.mark.skipif(
    "SPMDLINT" not in os.environ, reason="SPMDLINT does not name a checker"
)
takes_minutes = pytest.mark.skipif(not ALL, reason="takes minutes: SPMD_TEST_ALL=1 runs it")


def findings(name: str, folder, checked=False) -> list[dict]:
    trace = programs.recorded(name, folder, checked)
    options = ["--isolated", "--format=json", "--no-fixes", "--max-findings=100000"]
    return json.loads(output([os.environ["SPMDLINT"], "check", *options, trace]))["findings"]


@needs_checker
@pytest.mark.parametrize("name", NAMES)
def test_right_scripts_have_no_findings(name, tmp_path):
    assert findings(name, tmp_path) == []


@needs_checker
@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_found(name, tmp_path):
    found = findings(name, tmp_path)
    if "silent" in programs.MISTAKES[name]:
        assert found == [], "it is found: take out why it is not"
    else:
        assert found


@takes_minutes
@needs_checker
@pytest.mark.parametrize("name", programs.RIGHT_CHECKED)
def test_right_scripts_that_jax_checks(name, tmp_path):
    assert findings(name, tmp_path, checked=True) == []


def test_table():
    """The README says how many are found."""
    for name in programs.NAMES:
        mistakes = [one for key, one in programs.MISTAKES.items() if key.partition(".")[0] == name]
        found = sum("silent" not in one for one in mistakes)
        assert re.search(
            rf"\| `{name}` \|.*\| {found} of {len(mistakes)} \|", README.read_text()
        ), name


@takes_minutes
@pytest.mark.parametrize("name", NAMES)
def test_right_scripts_are_right(name, tmp_path):
    assert programs.error(name, tmp_path) < 1e-4


@takes_minutes
@pytest.mark.parametrize("name", [one for one in MISTAKES if "hangs" not in programs.MISTAKES[one]])
def test_mistakes_are_wrong(name, tmp_path):
    assert programs.error(name, tmp_path) > 1e-3
