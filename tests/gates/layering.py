# Gates over the source text: includes go only downwards (ir <- rules <- checker <- runtime) and
# never in a circle, neither of headers nor of the parts of a layer, some headers stay out or inside
# of their layer, folders stay small, every file says what it is for, comments fit into a line (code
# is clang-format's), no two types share a full name. Reads lines; needs no compiler.
import fnmatch
import itertools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# A folder may include itself and what stands before it. The longest folder that a path begins with
# counts.
LAYERS = ["ir", "rules", "checker", "checker/render", "checker/cli", "runtime", "runtime/cli"]

# What the rest of a layer shares, and nobody above it may lean on; a part that others know by its
# first header alone. Tests of a part may.
PRIVATE = {
    "checker/walk/": ["checker/"],
    "checker/gradual/": ["checker/"],
    "checker/fix/candidates.h": ["checker/fix/"],
    "checker/fix/search.h": ["checker/fix/"],
    "checker/backward/deriver.h": ["checker/backward/"],
    "rules/redistribute/emit.h": ["rules/redistribute/"],
    "rules/redistribute/search/": ["rules/redistribute/", "tests/"],
    "rules/transitions/rows.h": ["rules/transitions/"],
    "runtime/backends/cpu/steps.h": ["runtime/backends/cpu/"],
    "runtime/cli/run/": ["runtime/cli/"],
    "runtime/device/": ["runtime/device/", "runtime/nccl/", "runtime/cli/device_rank.cc", "tests/"],
    "runtime/equation/term.h": ["runtime/equation/"],
    "runtime/judge/likely_mistake.h": ["runtime/judge/"],
    "runtime/launch/team_member.h": ["runtime/launch/"],
    "runtime/nccl/": ["runtime/nccl/", "tests/"],
    "runtime/plan/planner/": ["runtime/plan/"],
}

# A folder of a layer is a part of it, which other parts include in one direction; what lies in the
# layer itself is what all of them share.

# Nobody reads a longer list of names. Tests are found by the name of what they test, and have no
# such limit.
MOST_ENTRIES = 25
ANY_NUMBER = ["tests/*", "exporters/tests/*"]
NO_SOURCE = re.compile(r"^\.|^__pycache__$|^build|\.egg-info$")

COLUMNS = 100

# Slow to compile, or a second way to do what fmt and LLVM do here.
UNWANTED = {"iostream", "ranges", "regex"}

# What LLVM 14 has and LLVM 19 has not: ir/support has functions of ours for these.
REMOVED = re.compile(
    r"\b(?:starts|ends)with(?:_insensitive)?\(|\.equals\("
    r"|\bllvm::(?:None|Optional|make(?:Mutable)?ArrayRef)\b"
)

NAMESPACE = re.compile(r"^(?:inline )?namespace ([\w:]*)\s*\{$")
NAMESPACE_END = re.compile(r"^\}\s*// namespace")
TYPE = re.compile(
    r"^(?:template <.*> )?(?:struct|class|enum class|enum) (?:LLVM_\w+ )?(\w+)(?!\w|::)[^;()]*\{"
)
STRING = re.compile(r'R"([^\s()\\]*)\((?:.|\n)*?\)\1"|"(?:[^"\\\n]|\\.)*"|\'"\'')
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def layer_of(path):
    """Index of the layer that a path of the tree belongs to; None outside of all."""
    best = None
    for index, layer in enumerate(LAYERS):
        if path.startswith(layer + "/"):
            best = index
    return best


def sources():
    for layer in ("ir", "rules", "checker", "runtime", "tests"):
        for path in sorted((ROOT / layer).rglob("*")):
            if path.suffix in (".h", ".cc", ".cu") and path.is_file():
                yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def includes(text):
    for number, line in enumerate(text.splitlines(), 1):
        if match := INCLUDE.match(line):
            yield number, match[1] == '"', match[2]


def upward_includes():
    for path, text in sources():
        own = layer_of(path)
        for number, quoted, target in includes(text):
            theirs = layer_of(target)
            if own is not None and theirs is not None and theirs > own:
                yield f"{path}:{number}: {LAYERS[own]} must not include {target}"
            elif own is not None and quoted and target.startswith("tests/"):
                yield f"{path}:{number}: {LAYERS[own]} must not include tests"
            elif quoted and not (ROOT / target).is_file() and not target.startswith("llvm/"):
                yield f"{path}:{number}: no {target} in the tree (paths start at the root)"


def private_includes():
    for path, text in sources():
        for number, _, target in includes(text):
            for folder, owners in PRIVATE.items():
                if target.startswith(folder) and not path.startswith(tuple(owners)):
                    yield f"{path}:{number}: {target} is for {', '.join(owners)} alone"


def circles(needs):
    """Each circle once, of what needs what."""
    done, open_ = set(), []

    def visit(path):
        if path in open_:
            yield open_[open_.index(path) :] + [path]
        elif path not in done:
            open_.append(path)
            for target in needs.get(path, []):
                yield from visit(target)
            open_.pop()
            done.add(path)

    for path in needs:
        yield from visit(path)


def circles_of_headers():
    needs = {
        path: [target for _, quoted, target in includes(text) if quoted] for path, text in sources()
    }
    for circle in circles(needs):
        yield " -> ".join(circle)


def part_of(path):
    """The part of a layer that a path belongs to; None: what all parts share, or no layer."""
    if layer_of(path) is None or path.count("/") < 2:
        return None
    return "/".join(path.split("/")[:2]) + "/"


def circles_of_parts():
    needs = {}
    for path, text in sources():
        own = part_of(path)
        for number, quoted, target in includes(text):
            theirs = part_of(target) if quoted else None
            if own and theirs and own != theirs:
                needs.setdefault(own, {}).setdefault(theirs, f"{path}:{number}")
    for circle in circles(needs):
        yield ", ".join(
            f"{needs[own][theirs]} includes {theirs}" for own, theirs in itertools.pairwise(circle)
        )


def crowded_folders(folder=ROOT):
    entries = [path for path in sorted(folder.iterdir()) if not NO_SOURCE.search(path.name)]
    name = folder.relative_to(ROOT).as_posix()
    exempt = any(fnmatch.fnmatch(f"{name}/", pattern) for pattern in ANY_NUMBER)
    if len(entries) > MOST_ENTRIES and not exempt:
        yield f"{name}: {len(entries)} files and folders, more than {MOST_ENTRIES}"
    for entry in entries:
        if entry.is_dir():
            yield from crowded_folders(entry)


def unwanted_headers():
    for path, text in sources():
        for number, _, target in includes(text):
            if target in UNWANTED:
                yield f"{path}:{number}: <{target}> is not used here"


def removed_by_llvm():
    for path, text in sources():
        for number, line in enumerate(text.splitlines(), 1):
            if match := REMOVED.search(line):
                yield f"{path}:{number}: `{match[0]}` is gone in later versions of LLVM"


def files_without_opening():
    for path, text in sources():
        if not text.startswith("// "):
            yield f"{path}:1: a file opens with a comment: what it is responsible for"
        elif path.endswith(".h") and "/pch/" not in str(path) and "#pragma once" not in text:
            yield f"{path}:1: no #pragma once"


def long_comments():
    for path, text in sources():
        # What a string holds is no comment, but takes its room.
        blank = STRING.sub(lambda match: re.sub(r"[^\n]", "_", match[0]), text)
        for number, line in enumerate(blank.splitlines(), 1):
            if len(line) > COLUMNS and "//" in line:
                yield f"{path}:{number}: a comment of {len(line)} columns, more than {COLUMNS}"


def types(text):
    """Line and full name of each type that other files could define too; nested ones are inside of
    another."""
    inside = []
    for number, line in enumerate(text.splitlines(), 1):
        if match := NAMESPACE.match(line):
            inside.append(match[1])
        elif NAMESPACE_END.match(line) and inside:
            inside.pop()
        elif (match := TYPE.match(line)) and "" not in inside:
            yield number, "::".join(inside + [match[1]])


def types_defined_twice():
    """The linker keeps one of two functions that the compiler made for one name, whichever type it
    is for."""
    first = {}
    for path, text in sources():
        for number, name in types(text):
            if name in first and first[name] != path:
                yield f"{path}:{number}: {name} is defined in {first[name]} too"
            first.setdefault(name, path)


GATES = [
    ("includes go downwards", upward_includes),
    ("headers of a layer stay inside", private_includes),
    ("headers do not include one another", circles_of_headers),
    ("parts of a layer do not include one another", circles_of_parts),
    ("folders stay small", crowded_folders),
    ("unwanted headers stay out", unwanted_headers),
    ("what is called is in every LLVM", removed_by_llvm),
    ("files say what they are for", files_without_opening),
    ("comments fit into a line", long_comments),
    ("a name is one type", types_defined_twice),
]


def main():
    failed = 0
    for name, gate in GATES:
        problems = list(gate())
        failed += bool(problems)
        if problems:
            print(f"FAIL {name}")
            print("".join(f"  {problem}\n" for problem in problems), end="")
    print(f"{len(GATES) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
