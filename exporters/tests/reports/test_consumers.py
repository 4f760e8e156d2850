"""Each format of `spmdlint check` is read by a program that is not ours, and says what the JSON
says."""

import json
import re

import pytest

from conftest import INPUTS, RENDERED, lint

LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def shown(findings):
    return [each for each in findings["findings"] if not each["suppression"]]


def test_sarif_is_read(written, findings):
    loader = pytest.importorskip("sarif.loader", reason="sarif-tools is not installed")
    read = loader.load_sarif_file(str(written("sarif")))
    records = read.get_records()
    assert [record["Code"] for record in records] == [each["name"] for each in findings["findings"]]
    assert [record["Severity"] for record in records] == [
        LEVELS[each["severity"]] for each in findings["findings"]
    ]
    for record, each in zip(records, findings["findings"]):
        place = each["places"][0]
        assert record["Location"] == place["path"] and record["Line"] == place.get(
            "line", record["Line"]
        )


def test_sarif_keeps_everything(written, findings):
    run = json.loads(written("sarif").read_text())["runs"][0]
    assert len(run["results"]) == len(findings["findings"])
    rules = run["tool"]["driver"]["rules"]
    for result, each in zip(run["results"], findings["findings"]):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == each["name"]
        assert result["occurrenceCount"] == len(each["places"])
        assert bool(result.get("suppressions")) == bool(each["suppression"])
        for note in each["notes"]:
            assert note["text"].split("; ")[0] in result["message"]["text"]
        for fix in each["fixes"]:
            assert fix["text"] in result["message"]["text"]
    notices = run["invocations"][0]["toolExecutionNotifications"]
    notices = [each["descriptor"]["id"] for each in notices]
    assert notices.count("judged") == len(INPUTS) - 1 and "trace-type" in notices
    assert run["invocations"][0]["executionSuccessful"] is False


def edited(text, replacements):
    """A text after the replacements of a SARIF fix."""
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)

    def offset(line, column):
        return starts[line - 1] + column - 1

    for each in reversed(replacements):
        region = each["deletedRegion"]
        text = (
            text[: offset(region["startLine"], region["startColumn"])]
            + each["insertedContent"]["text"]
            + text[offset(region["endLine"], region["endColumn"]) :]
        )
    return text


@pytest.mark.parametrize(
    "path", sorted((RENDERED / "../checker").glob("**/*.spmd")), ids=lambda path: path.stem
)
def test_sarif_fixes_repair(path, tmp_path):
    """The program with any fix applied has one finding less, and reads."""
    before = json.loads(lint("--format=json", "--no-fold", path.name, cwd=path.parent).stdout)[
        "findings"
    ]
    results = json.loads(lint("--format=sarif", "--no-fold", path.name, cwd=path.parent).stdout)[
        "runs"
    ][0]["results"]
    for result in results:
        for number, fix in enumerate(result.get("fixes", [])):
            (change,) = fix["artifactChanges"]
            copy = tmp_path / f"{number}.spmd"
            copy.write_text(edited(path.read_text(), change["replacements"]))
            done = lint("--format=json", "--no-fold", copy)
            after = json.loads(done.stdout)
            assert after["inputs"][0]["read"], (fix, after["inputs"][0]["errors"])
            errors = [each for each in after["findings"] if each["name"] == result["ruleId"]]
            assert len(errors) < len(
                [each for each in before if each["name"] == result["ruleId"]]
            ), fix


def test_junit_is_read(written, findings):
    junitparser = pytest.importorskip("junitparser", reason="junitparser is not installed")
    suites = list(junitparser.JUnitXml.fromfile(str(written("junit"))))
    assert [suite.name for suite in suites] == list(INPUTS)
    cases = [case for suite in suites for case in suite]
    failed = [
        case for case in cases if case.result and isinstance(case.result[0], junitparser.Failure)
    ]
    errors = [each for each in shown(findings) if each["severity"] == "error"]
    assert len(failed) == sum(suite.failures for suite in suites)
    told = {case.result[0].message: case.result[0].text for case in failed}
    assert set(told) == {each["message"] for each in errors}
    for each in errors:
        for fix in each["fixes"]:
            assert fix["text"] in told[each["message"]]
    skipped = [
        case for case in cases if case.result and isinstance(case.result[0], junitparser.Skipped)
    ]
    reasons = {case.result[0].message for case in skipped}
    for each in findings["findings"]:
        assert not each["suppression"] or each["suppression"]["reason"] in reasons
    assert sum(suite.errors for suite in suites) == 1


def test_junit_fails_as_the_run_does(tmp_path):
    program = tmp_path / "warned.spmd"
    program.write_text(
        'mesh m { tp = 4 }\nrule my.op = "a[...] -> [...]"\n%x = input f32[8] R\n%y = gelu %x\n'
        'suppress partial-into-nonlinear { scope = "a", reason = "b" }\n'
    )
    for level, failures in (("error", 0), ("warning", 1)):
        done = lint("--format=junit", f"--fail-on={level}", program)
        assert f'failures="{failures}"' in done.stdout.splitlines()[1], done.stdout
        assert done.returncode == failures


def test_gitlab_has_what_code_quality_asks_for(written, findings):
    entries = json.loads(written("gitlab").read_text())
    assert len({each["fingerprint"] for each in entries}) == len(entries)
    for each in entries:
        assert each["description"] and each["check_name"]
        assert each["severity"] in ("info", "minor", "major", "critical", "blocker")
        assert each["location"]["path"] and each["location"]["lines"]["begin"] >= 1
    assert [each["check_name"] for each in entries if each["severity"] != "blocker"] == [
        each["name"] for each in shown(findings)
    ]


def test_github_commands_are_read_back(written, findings):
    """By the grammar of workflow commands: `::NAME KEY=VALUE,...::MESSAGE`, both escaped."""

    def plain(text):
        return re.sub("%([0-9A-F]{2})", lambda match: chr(int(match[1], 16)), text)

    read = []
    for line in written("github").read_text().splitlines():
        name, properties, message = re.fullmatch(r"::(\w+) ([^:]*)::(.*)", line).groups()
        assert name in ("error", "warning", "notice")
        read.append(
            (name, dict(each.split("=", 1) for each in properties.split(",")), plain(message))
        )
    messages = [message.split("\n")[0] for _, _, message in read]
    for each in shown(findings):
        at = messages.index(each["message"])
        assert plain(read[at][1]["title"]) == each["name"]
        assert plain(read[at][1]["file"]) == each["places"][0]["path"]
        for fix in each["fixes"]:
            assert fix["text"] in read[at][2]


def test_markdown_is_rendered(written, findings):
    markdown_it = pytest.importorskip("markdown_it", reason="markdown-it-py is not installed")
    text = written("md").read_text()
    tokens = markdown_it.MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    rows = [token for token in tokens if token.type == "tr_open"]
    assert len(rows) == len(shown(findings)) + 1
    cells = [tokens[at + 1].children for at, token in enumerate(tokens) if token.type == "td_open"]
    assert all(
        child.type in ("text", "code_inline", "text_special") for cell in cells for child in cell
    )
    blocks = [token.content for token in tokens if token.type == "fence"]
    full = lint("--format=full", "--quiet", *INPUTS).stdout
    assert "\n".join(blocks) == full
    assert len(text.encode()) <= 60_000


def test_markdown_stays_below_its_limit(tmp_path):
    program = tmp_path / "many.spmd"
    lines = "".join(f'%y{i} = gelu %x at "{"a" * 300}/f{i}.py":{i}:1\n' for i in range(1, 400))
    program.write_text("trace { mode = local }\nmesh m { tp = 4 }\n%x = input f32[8] P\n" + lines)
    text = lint("--format=md", "--max-findings=1000", program).stdout
    assert 50_000 < len(text.encode()) <= 60_000
    assert re.search(r"^\d+ more are not in the table\.$", text, re.MULTILINE)


def test_sarif_offers_what_is_a_change_of_the_text():
    """Operands behind a new line, other attributes; nothing for a recording, whose text nobody
    writes."""

    def offered(path, folder):
        results = json.loads(lint("--format=sarif", path, cwd=folder).stdout)["runs"][0]["results"]
        return [fix for result in results for fix in result.get("fixes", [])]

    assert len(offered("partial.spmd", RENDERED / "../cli")) == 3
    attributes = [
        fix["artifactChanges"][0]["replacements"]
        for path in (RENDERED / "../checker").glob("**/*.spmd")
        for fix in offered(path.name, path.parent)
    ]
    assert any(len(each) == 1 for each in attributes) and any(len(each) == 2 for each in attributes)
    assert not offered("observed.spmd.json", RENDERED)
