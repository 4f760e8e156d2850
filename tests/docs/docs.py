# Holds the Markdown files of the tree against the binaries. Arguments: spmdlint, spmdrun;
# `--update` writes what is printed now. Checked are
# - blocks fenced as `console`: each `$ spmdlint ...` or `$ spmdrun ...` prints what stands below
#   it, stdout before stderr, in a folder that has the tree's folders and the files that the page
#   shows (`<!-- file: NAME -->` in front of a block), or in the folder that `<!-- in: FOLDER -->`
#   names. A line `...` stands for any lines; `[exit N]` ends the output of a command that does not
#   exit with 0;
# - docs/reference.md and docs/gallery.md, which reference.py and gallery.py write;
# - links: the file is there, and so is the heading.
import pathlib
import re
import subprocess
import sys
import tempfile

import gallery
import reference

ROOT = pathlib.Path(__file__).resolve().parents[2]
FENCE = re.compile(
    r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^`\n]*)\n(?P<body>.*?)^ *(?P=ticks)$",
    re.MULTILINE | re.DOTALL,
)
FILE = re.compile(r"<!-- file: (\S+) -->\n$")
LINK = re.compile(r"\]\(([^)\s]+)\)")
BELOW = re.compile(r"^<!-- in: (\S+) -->$", re.MULTILINE)
SHOWN = ("checker", "docs", "examples", "exporters", "ir", "rules", "runtime", "tests")


def pages():
    for path in sorted(ROOT.rglob("*.md")):
        parts = path.relative_to(ROOT).parts[:-1]
        if not any(
            part.startswith((".", "build", "venv")) or part == "node_modules" for part in parts
        ):
            yield path


def run(command, binaries, folder):
    """What a command prints, with its exit code unless that is 0."""
    calls = "".join(f'{name}() {{ "{binary}" "$@"; }}; ' for name, binary in binaries.items())
    done = subprocess.run(
        ["bash", "-c", calls + command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "TERM": "dumb", "COLUMNS": "100"},
    )
    text = done.stdout + done.stderr
    if text and not text.endswith("\n"):
        text += "\n"
    return text + (f"[exit {done.returncode}]\n" if done.returncode else "")


def commands(body):
    """Commands of a block and the lines that stand below each."""
    found = []
    for line in body.splitlines():
        if line.startswith("$ "):
            found.append((line, []))
        elif found:
            found[-1][1].append(line)
    return found


def fits(wanted, have):
    """Whether printed lines are the wanted ones, of which `...` is any number of lines."""
    if "..." not in wanted:
        return wanted == have
    first, rest = wanted[: wanted.index("...")], wanted[wanted.index("...") + 1 :]
    if have[: len(first)] != first:
        return False
    return any(fits(rest, have[start:]) for start in range(len(first), len(have) + 1))


def first_difference(wanted, have):
    for number in range(max(len(wanted), len(have))):
        left, right = (
            lines[number] if number < len(lines) else "(nothing)" for lines in (wanted, have)
        )
        if left != right:
            return f"\n  - {left}\n  + {right}"
    return ""


def checked_page(path, binaries, problems):
    """The text of a page with the output of its commands as it is now."""
    text = path.read_text(encoding="utf-8")
    if not re.search(r"^ *`{3,}console$", text, re.MULTILINE):
        return text, 0
    made, at, count, below = [], 0, 0, BELOW.search(text)
    with tempfile.TemporaryDirectory() as folder:
        for name in SHOWN:
            (pathlib.Path(folder) / name).symlink_to(ROOT / name)
        for block in FENCE.finditer(text):
            if file := FILE.search(text[: block.start()]):
                (pathlib.Path(folder) / file[1]).write_text(block["body"], encoding="utf-8")
            if block["info"].strip() != "console":
                continue
            lines = []
            for line, wanted in commands(block["body"]):
                have = run(
                    line[2:], binaries, pathlib.Path(folder) / (below[1] if below else "")
                ).splitlines()
                count += 1
                if fits(wanted, have):
                    have = wanted
                else:
                    problems.append(
                        f"{path.relative_to(ROOT)}: {line}{first_difference(wanted, have)}"
                    )
                lines += [line, *have]
            made += [text[at : block.start("body")], *(line + "\n" for line in lines)]
            at = block.end("body")
    return "".join(made) + text[at:], count


def anchors(path):
    """The names that links may give to the headings of a page."""
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def broken_links(path):
    for link in LINK.findall(FENCE.sub("", path.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists():
            yield f"{path.relative_to(ROOT)}: {link} is not there"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"{path.relative_to(ROOT)}: {link} is no heading"


def main():
    update = "--update" in sys.argv
    lint, execute = (pathlib.Path(word).resolve() for word in sys.argv[1:] if word != "--update")
    binaries, problems, count = {"spmdlint": lint, "spmdrun": execute}, [], 0
    made = {
        ROOT / "docs/reference.md": reference.page(lint, execute),
        ROOT / "docs/gallery.md": gallery.page(lint),
    }
    for path, text in made.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            problems.append(f"{path.relative_to(ROOT)} is out of date")
    for path in pages():
        if path not in made:
            text, commands_of_page = checked_page(path, binaries, problems)
            made[path] = text
            count += commands_of_page
    if update:
        for path, text in made.items():
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")
    links = [problem for path in pages() for problem in broken_links(path)]
    print("\n".join(problems + links))
    failed = len(problems) + len(links)
    print(f"{count + len(made) + 1 - failed} passed, {failed} failed")
    return bool(links or (problems and not update))


if __name__ == "__main__":
    sys.exit(main())
