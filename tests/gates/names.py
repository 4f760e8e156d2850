# Gates over names. Every value of `variant` and `computes`, the columns of the op table that
# kernels and the checker read in place of names, stands in a row or a spelling and is read. No
# source compares the name of a row, or a name that stands in the table of transitions, statements,
# formats, backends, dialects or findings. Every finding that has a page, and every command, output
# format and backend that is declared, is in the list of all.
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
COLUMNS = {
    "Variant": ("rules/ops/variant.h", "variant", "Plain"),
    "Computes": ("rules/ops/op.h", "computes", "Other"),
}
# Where the names of a table are written, by pattern. Whoever else needs one compares an enumerator
# or a row; the reader of the text works with its words.
TABLES = {
    "op": ("rules/ops/*.cc", r"\{\.name = \"(\w+)\""),
    "transition": ("rules/transitions/op.h", r"\"(\w+)\""),
    "statement": ("ir/boundary_ops.h", r"\{\.name = \"(\w+)\""),
    "output format": ("checker/render/render.cc", r"\{\"(\w+)\", \"[^\n]*render_"),
    "backend": ("runtime/backends/table.h", r"\{\.name = \"(\w+)\""),
    "dialect": ("ir/dialect/words.h", r"\"(\w+)\""),
    "finding": ("rules/violations/**/*.cc", r"\.name = \"([\w-]+)\""),
}
# Functions that a header declares for the rows of a table, by pattern, and where the table is.
ROWS = (
    ("checker/cli/options.h", r"ExitCode (run_\w+)\(", "checker/cli/main.cc"),
    ("checker/render/render.h", r"void (render_\w+)\(", "checker/render/render.cc"),
    ("runtime/backends/backend.h", r"> (make_\w+_backend)\(", "runtime/backends/table.h"),
)
# Where each name of a table stands as well: a page that says what it is, the help of an option, a
# test of its output.
NAMED = (
    ("checker/cli/main.cc", r"\n    \{\"(\w+)\", ", "tests/hostile/inputs.py"),
    ("ir/input/formats.cc", r"\{\"(\w+)\", \"\.spmd", "tests/hostile/characters.py"),
    ("ir/input/formats.cc", r"\{\"(\w+)\", \"\.spmd", "tests/docs/reference.py"),
    ("ir/input/formats.cc", r"\{\"(\w+)\", \"\.spmd", "checker/cli/options.cc"),
    ("ir/input/formats.cc", r"\{\"\w+\", \"(\.spmd[\w.]*)\"", "ir/README.md"),
    ("checker/render/render.cc", TABLES["output format"][1], "docs/ci.md"),
    ("rules/transitions/op.h", TABLES["transition"][1], "rules/README.md"),
)
WORDS = ("ir/text/read/",)
# What kernels compare are values of attributes, some of which are names of ops as well: `reduce =
# "sum"`.
ATTRIBUTES = ("runtime/kernels/",)
NAME_COMPARED = re.compile(
    r"\brow(?:\.|->)name\s*[!=]=\s*\"\w|\balias->spelling\s*[!=]=\s*\"|"
    r"\b(?:starts|ends)_with\([^\n]*\brow(?:\.|->)name"
)


def code(folders):
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".h", ".cc"):
                text = path.read_text(encoding="utf-8")
                yield path.relative_to(ROOT).as_posix(), re.sub(r"//[^\n]*", "", text)


def enumerators(kind, header):
    text = re.sub(r"//[^\n]*", "", (ROOT / header).read_text(encoding="utf-8"))
    body = re.search(rf"enum class {kind} : uint8_t \{{(.*?)\}};", text, re.DOTALL)[1]
    return re.findall(r"\w+", body)


def compared_names():
    """Comparisons with a name that stands in a table."""
    known = {}
    for table, (where, pattern) in TABLES.items():
        found = [
            name
            for path in ROOT.glob(where)
            for name in re.findall(pattern, path.read_text(encoding="utf-8"))
        ]
        if len(found) < 3:
            yield f"{where}: holds no table of {table}s any more"
        known |= dict.fromkeys(found, table)
    for path, text in code(["ir", "rules", "checker", "runtime"]):
        if path.startswith(WORDS + ATTRIBUTES):
            continue
        for match in re.finditer(r"[!=]=\s*\"([\w-]+)\"", text):
            before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
            if match[1] in known and "word_attr(" not in before:
                number = text.count("\n", 0, match.start()) + 1
                yield f"{path}:{number}: compares the name of a {known[match[1]]}: {match[1]}"


def unlisted_findings():
    """Findings that `explain` and `--select` would not know."""
    listed = (ROOT / "rules/violation.cc").read_text(encoding="utf-8")
    names = re.findall(r"\w+", re.search(r"kInfos<(.*?)>;", listed, re.DOTALL)[1])
    for path, text in code(["rules/violations"]):
        for name in re.findall(r"DiagnosticInfo (\w+)::info", text):
            if name not in names:
                yield f"{path}: {name} is not in the list of rules/violation.cc"


def without_row():
    for header, pattern, table in ROWS:
        rows = (ROOT / table).read_text(encoding="utf-8")
        for name in re.findall(pattern, (ROOT / header).read_text(encoding="utf-8")):
            if not re.search(rf"\b{name}\b", rows):
                yield f"{header}: {name} is in no row of {table}"


def not_named():
    for table, pattern, page in NAMED:
        text = (ROOT / page).read_text(encoding="utf-8")
        for name in re.findall(pattern, (ROOT / table).read_text(encoding="utf-8")):
            if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text):
                yield f"{page}: {name} of {table} does not stand there"


def keys_without_schema():
    """Keys that the reader of JSON knows; whoever writes traces reads of them there."""
    schema = (ROOT / "ir/json/trace.schema.json").read_text(encoding="utf-8")
    for path, text in code(["ir/json/read"]):
        for row in re.findall(r"array<std::string_view, [^>]*> k\w+ = \{(.*?)\};", text, re.DOTALL):
            for key in re.findall(r"\"(\w+)\"", row):
                if f'"{key}"' not in schema:
                    yield f"{path}: ir/json/trace.schema.json has no key {key}"


def problems():
    tables = "\n".join(text for _, text in code(["rules/ops"]))
    readers = "\n".join(text for _, text in code(["checker", "runtime"]))
    for kind, (header, column, absent) in COLUMNS.items():
        stated = set(re.findall(rf"\.{column} = (?:{kind}::)?(\w+)", tables))
        read = set(re.findall(rf"\b{kind}::(\w+)", readers))
        for name in enumerators(kind, header):
            if name != absent and name not in stated:
                yield f"{header}: no row or spelling has {kind}::{name}"
            if name != absent and name not in read:
                yield f"{header}: nothing reads {kind}::{name}"
    yield from compared_names()
    yield from unlisted_findings()
    yield from without_row()
    yield from not_named()
    yield from keys_without_schema()
    for path, text in code(["ir", "rules", "checker", "runtime"]):
        for match in NAME_COMPARED.finditer(text):
            number = text.count("\n", 0, match.start()) + 1
            yield (
                f"{path}:{number}: compares the name of a row: make it a value of `variant` or "
                "`computes`"
            )


found = list(problems())
print(
    "\n".join(found) or "columns: every value is in a table and read; no name of a row is compared"
)
sys.exit(bool(found))
