# Functions have at most 80 lines and lines at most 100 columns, in C++ and in Python; lines also in
# scripts, in JavaScript and in what meson reads. With `--report` the longest ones, and where the
# distribution lies. Functions of C++ are found by their shape in formatted text: a head that ends
# in `{`, and the `}` in the same column. Lines of raw strings, of texts in triple quotes and of
# tables that clang-format leaves alone may be longer, and functions `..._kernels()`: each returns a
# table, a row a line.
import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ["ir", "rules", "checker", "runtime", "tests", "exporters", "examples", "docs", "editors"]
# Lines alone are looked at.
SCRIPTS = (".sh", ".js", "meson.build", "meson_options.txt")
SCRIPTS_OF_ROOT = ["dev", "meson.build", "meson_options.txt"]
# A source that a test quotes: not for Python to read.
QUOTED = "tests/cases/render/source/"
SHOWN = 12
MOST_LINES, MOST_COLUMNS = 80, 100
ALONE = re.compile(r'// clang-format off.*?// clang-format on|R"(\w*~?)\(.*?\)\1"', re.DOTALL)

TRIPLE = re.compile(r'"""(?:.|\n)*?"""')

# A head has an argument list and does not begin like a statement, a type or an entry of a table.
STATEMENTS = "if|for|while|switch|else|do|return|namespace|struct|class|enum|union|case"
HEAD = re.compile(
    rf"^( *)(?![{{\"]|(?:{STATEMENTS})\b)\S.*\)[^;]*\{{$|^( *)\S.*\) (?:const )?\{{ .* \}}$"
)


def python_functions(name, text):
    """(line number, length) of each function, its decorators included."""
    for node in ast.walk(ast.parse(text, name)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            yield first, node.end_lineno - first + 1


def functions(lines):
    """(line number, length) of each function."""
    number = 0
    while number < len(lines):
        line = lines[number]
        match = HEAD.match(line)
        if not match or line.lstrip().startswith("//"):
            number += 1
            continue
        first = number
        while (
            first > 0
            and not line.lstrip().startswith("[")
            and lines[first - 1].strip()
            and not lines[first - 1].rstrip().endswith((";", "{", "}", ":"))
            and not lines[first - 1].lstrip().startswith(("//", "#", "template"))
        ):
            first -= 1
        if line.endswith("}"):
            yield first + 1, number - first + 1
        else:
            indent = len(lines[first]) - len(lines[first].lstrip())
            last = number + 1
            while last < len(lines) and not re.match(rf"^ {{{indent}}}\}}", lines[last]):
                last += 1
            yield first + 1, last - first + 1
            number = last
        number += 1


def percentile(sorted_values, percent):
    return (
        sorted_values[min(len(sorted_values) - 1, len(sorted_values) * percent // 100)]
        if sorted_values
        else 0
    )


def show(title, entries):
    lengths = sorted(length for length, _ in entries)
    middle, tail = percentile(lengths, 50), percentile(lengths, 95)
    print(f"{title}: {len(lengths)}, median {middle}, p95 {tail} lines")
    for length, place in sorted(entries, key=lambda e: (-e[0], e[1]))[:SHOWN]:
        print(f"  {length:4} {place}")


def without_texts(text, is_python):
    """What may have longer lines is left out, its line feeds are not."""
    if not is_python:
        return ALONE.sub(lambda match: "\n" * match[0].count("\n"), text)

    def blank(match):
        documents = not text[text.rfind("\n", 0, match.start()) + 1 : match.start()].strip()
        return match[0] if documents else "\n" * match[0].count("\n")

    return TRIPLE.sub(blank, text)


def long_lines(text, is_python):
    """The numbers of lines that are too long."""
    lines = without_texts(text, is_python).split("\n")
    return [number for number, line in enumerate(lines, 1) if len(line) > MOST_COLUMNS]


def is_table(place):
    name, number = place.rsplit(":", 1)
    return "_kernels() {" in (ROOT / name).read_text(encoding="utf-8").splitlines()[int(number) - 1]


def sources(folders):
    """(path below the root, text) of each source."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix in (".h", ".cc", ".cu", ".py") and not name.startswith(QUOTED):
                yield name, path.read_text(encoding="utf-8")


def scripts(folders):
    """(path below the root, text) of each script, with those of the root if that is looked at."""
    paths = [ROOT / name for name in SCRIPTS_OF_ROOT] if folders == FOLDERS else []
    for folder in folders:
        paths += sorted(
            path for path in (ROOT / folder).rglob("*") if path.is_file() and is_script(path)
        )
    for path in paths:
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def is_script(path):
    return path.name.endswith(SCRIPTS) and "node_modules" not in path.parts


def main(folders, report):
    files, all_functions = [], []
    wrong = [
        f"{name}:{number}: more than {MOST_COLUMNS} columns"
        for name, text in scripts(folders)
        for number, line in enumerate(text.split("\n"), 1)
        if len(line) > MOST_COLUMNS
    ]
    for name, text in sources(folders):
        is_python = name.endswith(".py")
        lines = text.splitlines()
        wrong += [
            f"{name}:{number}: more than {MOST_COLUMNS} columns"
            for number in long_lines(text, is_python)
        ]
        files.append((len(lines), name))
        found = python_functions(name, text) if is_python else functions(lines)
        all_functions += [(length, f"{name}:{number}") for number, length in found]
    wrong += [
        f"{place}: a function of {length} lines, more than {MOST_LINES}"
        for length, place in all_functions
        if length > MOST_LINES and not is_table(place)
    ]
    if report:
        show("functions", all_functions)
        show("files", files)
    print("\n".join(wrong) or f"lengths: {len(all_functions)} functions, {len(files)} files")
    return bool(wrong)


if __name__ == "__main__":
    named = [argument for argument in sys.argv[1:] if argument != "--report"]
    sys.exit(main(named or FOLDERS, "--report" in sys.argv))
