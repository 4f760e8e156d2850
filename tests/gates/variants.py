# Gates over the columns of the op table that kernels and the checker read in place of names: every value of
# `variant` and `computes` stands in a row or a spelling and is read, and no source compares the name of a row.
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
COLUMNS = {"Variant": ("rules/ops/variant.h", "variant", "Plain"), "Computes": ("rules/ops/op.h", "computes", "Other")}
NAME_COMPARED = re.compile(r"\brow(?:\.|->)name\s*[!=]=\s*\"\w|\balias->spelling\s*[!=]=\s*\"|"
                           r"\b(?:starts|ends)_with\([^\n]*\brow(?:\.|->)name")


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


def problems():
    tables = "\n".join(text for path, text in code(["rules/ops"]))
    readers = "\n".join(text for path, text in code(["checker", "runtime"]))
    for kind, (header, column, absent) in COLUMNS.items():
        for name in enumerators(kind, header):
            if name == absent:
                continue
            if not re.search(rf"\.{column} = (?:{kind}::)?{name}\b", tables):
                yield f"{header}: no row or spelling has {kind}::{name}"
            if not re.search(rf"\b{kind}::{name}\b", readers):
                yield f"{header}: nothing reads {kind}::{name}"
    for path, text in code(["ir", "rules", "checker", "runtime"]):
        for match in NAME_COMPARED.finditer(text):
            number = text.count("\n", 0, match.start()) + 1
            yield f"{path}:{number}: compares the name of a row: make it a value of `variant` or `computes`"


found = list(problems())
print("\n".join(found) or "columns: every value is in a table and read; no name of a row is compared")
sys.exit(bool(found))
