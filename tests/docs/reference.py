# docs/reference.md, made of what the binaries say of themselves: `page(spmdlint, spmdrun)` is its
# text.
import re
import subprocess

HEAD = """# Reference

Made by `tests/docs/docs.py --update` from what the binaries print; do not edit. `spmdlint explain NAME` has a page for each
finding, op, transition, kind and exit code, with a program that has the finding and the same program without it.
"""

FORMATS = """
## Formats

| what | written | read | described by |
|---|---|---|---|
| programs as text, `.spmd` | `spmdlint fmt --to=text` | yes | [ir](../ir/README.md#the-text) |
| programs as a JSON document, `.spmd.json` | `spmdlint fmt --to=json`, the recorders | yes | `spmdlint schema trace` |
| programs as a JSON stream, `.spmd.jsonl` | `spmdlint fmt --to=jsonl` | yes | `spmdlint schema trace` |
| any of them in gzip or zstd | `-o NAME.gz`, `-o NAME.zst` | yes | |
| findings for people | `--format=full`, `--format=concise` | | |
| findings for programs | `--format=json` | `--since` | `spmdlint schema output` |
| findings for services and editors | [other formats](ci.md#reports) | | their makers |
| configuration, `spmdlint.toml` | `spmdlint config init` | yes | `spmdlint schema config` |
| plans, elaborated programs | `plan`, `elaborate` with `--format=json` | | |
| verdicts of a run | `spmdrun --verdicts=FILE` | | |
| values of a run | `spmdrun --trace-out=DIR` | `--input=NAME=FILE` | .npy, .safetensors |
| times of the steps of a run | `spmdrun --profile=FILE` | | Perfetto |
"""


def said(binary, *words):
    done = subprocess.run(
        [binary, *words],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "TERM": "dumb", "COLUMNS": "100"},
    )
    return done.stdout


def contents(lint):
    """The names of each section of the manual."""
    sections = {}
    for block in said(lint, "explain").strip().split("\n\n"):
        title, _, names = block.partition("\n")
        sections[title] = names.split()
    return sections


def cell(text):
    return text.replace("|", "\\|")


def findings(lint, names):
    yield "| finding | severity | an example of what it says |\n|---|---|---|"
    for name in names:
        lines = said(lint, "explain", name).splitlines()
        severity = re.match(rf"{re.escape(name)} \((\w+)", lines[0])
        sentence = next(line.strip() for line in lines[1:] if line.strip())
        yield f"| `{name}` | {severity[1]} | {cell(sentence)} |"


def transitions(lint, names):
    yield "| transition | on each axis | forward | backward |\n|---|---|---|---|"
    for name in names:
        for line in said(lint, "explain", name).splitlines():
            row = re.match(r"  (.*?): (.*?); backward (.*)$", line)
            if row:
                yield f"| `{name}` | {cell(row[1])} | {cell(row[2])} | {cell(row[3])} |"


def one_line_each(lint, names, title):
    yield f"| {title} | |\n|---|---|"
    for name in names:
        first = said(lint, "explain", name).splitlines()[0]
        text = (
            first.split(":", 1)[-1].strip()
            or f"`spmdlint explain {name}` lists what it does on each axis"
        )
        yield f"| `{name}` | {cell(text)} |"


def page(lint, execute):
    sections = contents(lint)
    commands = re.findall(
        r"^  (\w+)(?: .*)?  +\w", said(lint, "--help").split("exit codes")[0], re.MULTILINE
    )
    lines = [HEAD, "## spmdlint\n", f"```text\n{said(lint, '--help').rstrip()}\n```"]
    for command in commands:
        if command not in ("help", "version"):
            text = said(lint, "help", command).rstrip()
            lines += [f"\n### spmdlint {command}\n", f"```text\n{text}\n```"]
    lines += ["\n## spmdrun\n", f"```text\n{said(execute, '--help').rstrip()}\n```", FORMATS]
    lines += ["## Findings\n", *findings(lint, sections["findings"])]
    lines += [
        "\n## Input errors\n",
        "All give exit code 3 and name the place.\n",
        *one_line_each(lint, sections["input errors"], "name"),
    ]
    lines += ["\n## Kinds\n"]
    pages = "\n\n".join(said(lint, "explain", kind).rstrip() for kind in sections["kinds"])
    lines += [f"```text\n{pages}\n```"]
    lines += ["\n## Transitions\n", *transitions(lint, sections["transitions"])]
    lines += ["\n## Statements\n", *one_line_each(lint, sections["statements"], "statement")]
    lines += [
        "\n## Ops\n",
        f"{len(sections['ops'])} rows. `spmdlint ops` prints all of them with their equations and "
        "spellings, `spmdlint ops --format=md` as a\ntable, `spmdlint explain OP` one of them with "
        "its attributes.",
    ]
    return "\n".join(lines) + "\n"
