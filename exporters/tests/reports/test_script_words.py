"""Whoever has a finding in a script reads what to write there: each finding whose program gets a
fix says it in the words of PyTorch and of JAX, or stands below with the reason why it cannot."""

import functools
import json
import re
import subprocess

import pytest

from conftest import LINT

# A column for each framework; an empty one: it has words.
_PLACED = "it says what the program states, which a recording infers"
_SEVERAL = "it is several collectives, in an order that the script has to arrange"
_GENERATOR = "a recording has no states of generators"
_WHOLE = "its program is of whole arrays, where the compiler places the collectives"
_MEANING = "it moves no data: it says what the operand means"
REASONS = {
    "expert-transition": (_PLACED, _PLACED),
    "needless-partial": (_PLACED, _PLACED),
    "unstated-partial": (_PLACED, _PLACED),
    "shard-order-unknown": (_SEVERAL, _SEVERAL),
    "not-innermost": (_SEVERAL, _SEVERAL),
    "sharded-random-repeats": (_GENERATOR, _GENERATOR),
    "wrong-source": (_MEANING, _MEANING),
    "missing-vjp": ("", "collectives of JAX have derivatives"),
    **dict.fromkeys(
        [
            "axis-used-twice",
            "gradient-type-mismatch",
            "norm-undercount",
            "scale-mismatch",
            "strided-shard",
            "unequal-counts",
            "uneven-list",
            "unreduced-gradient",
            "unwhole-dimension",
            "wrong-dimension",
        ],
        ("", _WHOLE),
    ),
    "overlappable": ("", "XLA orders calls by itself"),
}
FRAMEWORKS = {"PyTorch": "torch 2.15.0", "JAX": "jax 0.10.2"}


@functools.cache
def explained(*words):
    done = subprocess.run([LINT, "explain", *words], capture_output=True, text=True, check=True)
    return done.stdout


def findings():
    return explained().split("findings\n")[1].split("\n\n")[0].split()


def program_of(name, framework):
    """The program of the page, as if it were recorded from the framework; None if it has none."""
    page = explained(name)
    if "a program with this finding:\n" not in page:
        return None
    text = page.split("a program with this finding:\n\n")[1]
    lines = []
    for line in text.splitlines():
        if line and not line.startswith("  "):
            break
        lines.append(line[2:])
    text = "\n".join(lines).rstrip() + "\n"
    made_by = f'producer = {{ name = "spmd-trace", version = "1", framework = "{framework}" }}'
    text = re.sub(r"producer = \{[^}]*\},? ?", "", text, count=1)
    head = re.match(r"trace \{ ?", text)
    if not head:
        return f"trace {{ {made_by} }}\n{text}"
    return f"trace {{ {made_by}, {text[head.end() :]}".replace(", }", " }", 1)


def checked(form, paths):
    done = subprocess.run(
        [LINT, "check", "--isolated", f"--format={form}", "--select=all", "--quiet", *paths],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1, 4), done.stderr
    return done.stdout


def reported(language, folder):
    """What is said in the words of the framework of each finding whose program gets a fix."""
    paths = {}
    for name in findings():
        if text := program_of(name, FRAMEWORKS[language]):
            paths[name] = folder / f"{name}.spmd"
            paths[name].write_text(text)
    found = json.loads(checked("json", paths.values()))["findings"]
    words = {}
    for index, (name, path) in enumerate(paths.items()):
        own = [one for one in found if one["input"] == index and one["name"] == name]
        if any(one["fixes"] for one in own):
            blocks = checked("full", [path]).split("\n\n")
            block = next(one for one in blocks if f"[{name}]" in one.splitlines()[0])
            words[name] = re.findall(rf"^ *= in {language}: (.*)", block, re.MULTILINE)
    return words


@pytest.fixture(scope="module", params=FRAMEWORKS)
def reports(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    column = list(FRAMEWORKS).index(request.param)
    return column, reported(request.param, folder)


def test_each_fix_is_said_in_the_words_of_the_framework(reports):
    column, made = reports
    assert len(made) > 30
    wordless = {name for name, words in made.items() if not words}
    assert wordless == {name for name, why in REASONS.items() if why[column]}


def test_calls_are_code(reports):
    """Of what is no sentence: everything in front of `, where` and the like."""
    _, made = reports
    call = re.compile(r"(?:[a-z_]+\.)+[a-z_]+\(.*?\)(?=,? (?:where|before|after|for|in) )")
    seen = 0
    for name, words in made.items():
        for line in words:
            if code := call.match(line):
                seen += 1
                compile(code[0], name, "eval")
    assert seen > 10
