# docs/gallery.md, made of the programs of tests/corpus and of what the checker says of them:
# `page(spmdlint)` is its text.
import difflib
import pathlib
import re
import subprocess

CORPUS = pathlib.Path(__file__).resolve().parents[1] / "corpus"
HEAD = """# Gallery of public bugs

Made by `tests/docs/docs.py --update` from [the corpus](../tests/corpus/README.md); do not edit. Each entry is a bug of public training code, reduced to
a few operations: what happened, what `spmdlint check` says of the program, and how the right program differs.
"""
ROW = re.compile(r"^\| (\w+) \| ([^|]+) \| \w \| ([\w-]+) \| ([^|]+) \| (.*) \|$", re.MULTILINE)


def story(text):
    """The first comment of a program."""
    return text.splitlines()[0].removeprefix("//").strip()


def code(text):
    """The lines of a program without its comments."""
    bare = (re.sub(r"\s*//(?=\s).*$", "", line) for line in text.splitlines())
    return [line for line in bare if line]


def said(lint, path, finding):
    done = subprocess.run(
        [lint, "check", "--isolated", "--format=full", f"--select={finding}", path.name],
        cwd=path.parent,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "TERM": "dumb", "COLUMNS": "100"},
    )
    # What everything ends in is no part of a finding.
    lines = [
        line.rstrip()
        for line in done.stdout.splitlines()
        if not re.match(r"\d+ (error|warning|info)|what it means and how|what they mean", line)
    ]
    return "\n".join(lines).strip()


def entry(lint, name, project, finding, axes, report):
    wrong, right = (CORPUS / f"{name}.{form}.spmd" for form in ("buggy", "fixed"))
    before, after = code(wrong.read_text()), code(right.read_text())
    changed = [
        line
        for line in difflib.unified_diff(before, after, lineterm="", n=1)
        if not line.startswith(("---", "+++", "@@"))
    ]
    return f"""
## {name}: {project}, {finding}

{story(wrong.read_text())} Axes: {axes}. {report}, [the program](../tests/corpus/{wrong.name}).

```text
{said(lint, wrong, finding)}
```

What is right:

```diff
{chr(10).join(changed)}
```
"""


def page(lint):
    rows = ROW.findall((CORPUS / "README.md").read_text())
    assert len(rows) == len(list(CORPUS.glob("*.buggy.spmd"))), "a bug is not in the table"
    return HEAD + "".join(entry(lint, *row) for row in rows)
