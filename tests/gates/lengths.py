# A report, not a gate: the longest functions and files, and where the distribution lies. Functions are found
# by their shape in formatted text: a head that ends in `{`, and the `}` in the same column.
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHOWN = 12

# A head has an argument list and does not begin like a statement or a type.
HEAD = re.compile(r"^( *)(?!(?:if|for|while|switch|else|do|return|namespace|struct|class|enum|union|case)\b)\S.*"
                  r"\)[^;]*\{$|^( *)\S.*\) (?:const )?\{ .* \}$")


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
        while first > 0 and lines[first - 1].strip() and not lines[first - 1].rstrip().endswith((";", "{", "}", ":")) \
                and not lines[first - 1].lstrip().startswith(("//", "#", "template")):
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
    return sorted_values[min(len(sorted_values) - 1, len(sorted_values) * percent // 100)] if sorted_values else 0


def show(title, entries):
    lengths = sorted(length for length, _ in entries)
    print(f"{title}: {len(lengths)}, median {percentile(lengths, 50)}, p95 {percentile(lengths, 95)} lines")
    for length, place in sorted(entries, key=lambda e: (-e[0], e[1]))[:SHOWN]:
        print(f"  {length:4} {place}")


def main(folders):
    files, all_functions = [], []
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in (".h", ".cc"):
                continue
            name = path.relative_to(ROOT).as_posix()
            lines = path.read_text(encoding="utf-8").splitlines()
            files.append((len(lines), name))
            all_functions += [(length, f"{name}:{number}") for number, length in functions(lines)]
    show("functions", all_functions)
    show("files", files)


if __name__ == "__main__":
    main(sys.argv[1:] or ["ir", "rules", "checker", "tests"])
