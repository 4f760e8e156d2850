# Gate over the table of statements in tests/README.md: every statement of the proposals is in some row, and each case
# that a row names is there and names the statements of the row by their numbers.
import pathlib
import re
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]

# How many statements each proposal has.
STATEMENTS = {0: 17, 1: 17, 2: 15, 3: 10, 4: 13}

NUMBER = r"(?<![\w.])([0-4])\.(\d+)(?![\w.]*\d)"
# `0.1 - 0.5`, `0.1 to 0.5`: all of them.
RANGE = re.compile(NUMBER + r"(?: - | to )" + NUMBER)
LINK = re.compile(r"\]\((?!\.\./)([^)]+)\)")


def numbers(text):
    """The statements that a text names."""
    found = {(int(a), int(b)) for a, b in re.findall(NUMBER, text)}
    for match in RANGE.finditer(text):
        first, last = (int(match[1]), int(match[2])), (int(match[3]), int(match[4]))
        if first[0] == last[0]:
            found |= {(first[0], n) for n in range(first[1], last[1] + 1)}
    return found


def comments(path):
    """What a case says about itself: comments, and in transcripts what stands behind the commands."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if path.suffix == ".txt":
        return "\n".join(line.split("  # ", 1)[1] for line in lines if line.startswith("$ ") and "  # " in line)
    return "\n".join(line.split("//", 1)[1] for line in lines if "//" in line)


def rows():
    text = (TESTS / "README.md").read_text(encoding="utf-8")
    section = text.split("## The proposals, statement by statement", 1)[1].split("\n## ", 1)[0]
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if len(cells) == 3 and numbers(cells[0]):
            yield numbers(cells[0]), LINK.findall(cells[2])


def problems():
    told = set()
    for stated, files in rows():
        told |= stated
        if not files:
            yield f"a row of {sorted(stated)[0]} names no case"
        named = set()
        for file in files:
            path = TESTS / file
            if not path.is_file():
                yield f"{file} is not there"
                continue
            named |= numbers(comments(path))
        for number in sorted(stated - named):
            yield f"{number[0]}.{number[1]}: none of {', '.join(files)} names it"
    for proposal, count in STATEMENTS.items():
        for number in range(1, count + 1):
            if (proposal, number) not in told:
                yield f"{proposal}.{number} is in no row of the table"
    for number in sorted(told):
        if number[1] > STATEMENTS.get(number[0], 0):
            yield f"{number[0]}.{number[1]} is no statement"


found = list(problems())
print("\n".join(found) if found else "the table of statements is complete")
sys.exit(bool(found))
