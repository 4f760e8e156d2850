"""Characters that act on a terminal or cannot be seen, in every place that is printed: SPMDLINT
SPMDRUN [--sanitized]. No output may hold one of them as it is, and what should be JSON must be."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unicodedata

# Controls of both tables, marks of direction, zero-width and filling characters, separators, tags.
CHARACTERS = (
    [chr(c) for c in range(1, 0x20) if chr(c) not in "\n\r"]
    + ["\n", "\r", "\x7f"]
    + [chr(c) for c in range(0x80, 0xA0)]
    + list(
        "\u00ad\u034f\u061c\u115f\u180e\u200b\u200c\u200d\u200e\u200f\u2028\u2029"
        "\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\u206f\u3164"
        "\ufe0f\ufeff\uffa0\ufff9\ufffe\U000e0001\U000e0041"
    )
)
GROUP = 6  # of them in one name: short enough that no line is cut
# Of a sanitized build, which takes ten times as long to start and is asked about memory alone.
GROUP_SANITIZED = 24
DOCUMENTS = ("json", "sarif", "gitlab")  # formats that are JSON


def formats(lint):
    """The output formats, as the help lists them."""
    printed = subprocess.run(
        [lint, "help", "check"], check=True, capture_output=True, text=True
    ).stdout
    return re.findall(r"^  (\w+)  ", printed.split("\nformats\n")[1].split("\n\n")[0], re.MULTILINE)


def invisible(text, lines=True):
    """The characters of an output that should not be there."""
    kept = "\n" if lines else ""
    return sorted(
        {
            c
            for c in text
            if c not in kept
            and (unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") or c in CHARACTERS)
        }
    )


def program(word):
    """Names of all kinds that hold the word, with findings, notes, fixes, suppressions and scales
    about them."""
    w = json.dumps(word)  # escapes of JSON are those of the text
    return f"""trace {{ mode = local }}
mesh m {{ dp = 2, tp = 4 {w} }}
symbol s {{ min = 1 }}
group {w} = m.tp
rule my.op = "a[...] -> [...]"
suppress partial-into-nonlinear {{ scope = {w}, reason = {w} }}
%x = input f32[8, 16] P@tp V@dp {w} at {w}:3:1 fn {w} in {w}
%p = param f32[16] I {w} {{ grad = P, hints = {{ tp = {w} }} }}
%g = gelu %x at {w}:4 fn {w} from {w}:5 in {w}
%h = gelu %x {{ approximate = {w} }}
%i = my.unknown %x {{ {w} = {w} }}
%j = my.op %x {{ note = [{w}], {w} = {w} }}
%k = mul %h, %p
%l: f32[8, 16] R = neg %x
output %k {w}
"""


def warned(word):
    """The word where there are warnings alone: what a report says first of them stands nowhere
    else."""
    w = json.dumps(word)
    return f"""trace {{ mode = local }}
mesh m {{ tp = 4 }}
group {w} = [0, 1, 3]
%x = input f32[8] P {w}
%y = all_reduce %x {{ group = {w}, src = P, dst = R }}
"""


def malformed(word):
    """The word where no such name may stand: each line is an error that quotes it."""
    w = json.dumps(word)
    return f"""mesh m {{ tp = 4 }}
mesh {w} {{ tp = 4 }}
symbol {w} {{ {w} = 1 }}
%{w} = input f32[8] R
%y = {w} %x
%z = neg %x {{ axis = {w}, phase = {w}, {word} }}
{word}
suppress {w} {{ reason = "" }}
"""


def run(arguments, **more):
    done = subprocess.run(arguments, capture_output=True, check=False, timeout=60, **more)
    return (
        done.returncode,
        done.stdout.decode(errors="surrogateescape"),
        done.stderr.decode(errors="surrogateescape"),
    )


class Tests:
    def __init__(self, lint, run_binary, folder):
        self.lint, self.run_binary, self.folder = lint, run_binary, folder
        self.texts = [name for name in formats(lint) if name not in DOCUMENTS]
        self.tried, self.wrong = 0, []

    def look(self, what, word, arguments, document=False, codes=(0, 1, 2, 3)):
        code, out, err = run(arguments, cwd=self.folder)
        self.tried += 1
        where = f"{what} with {word!a}"
        if code not in codes:
            self.wrong.append(f"{where}: exit code {code}: {err[:200]!a}")
        for name, text in (("stdout", out), ("stderr", err)):
            if found := invisible(text):
                self.wrong.append(f"{where}: {name} holds {found!a}")
        if document and code in (0, 1):
            try:
                json.loads(out)
            except ValueError as problem:
                self.wrong.append(f"{where}: no JSON: {problem}")
        return out

    def inside(self, word):
        """In the names of a program."""
        path = os.path.join(self.folder, "names.spmd")
        with open(path, "w", encoding="utf-8") as out:
            out.write(program(word))
        for form in self.texts:
            self.look(
                form, word, [self.lint, "check", f"--format={form}", "--annotate", "--stats", path]
            )
        for form in DOCUMENTS:
            self.look(form, word, [self.lint, "check", f"--format={form}", path], document=True)
        mild = os.path.join(self.folder, "warned.spmd")
        with open(mild, "w", encoding="utf-8") as out:
            out.write(warned(word))
        for form in (*self.texts, *DOCUMENTS):
            self.look(
                f"warnings in {form}",
                word,
                [self.lint, "check", f"--format={form}", mild],
                codes=(0,),
            )
        for command in (
            ["dump"],
            ["dump", "--stage=types"],
            ["dump", "--dialect=jax"],
            ["backward"],
            ["elaborate"],
            ["fmt", "--to=text", "-o", "-"],
            ["fmt", "--to=json", "-o", "-"],
            ["fmt", "--to=jsonl", "-o", "-"],
            ["validate"],
        ):
            out = self.look(" ".join(command), word, [self.lint, *command, path])
            if "--to=json" in command or "--to=text" in command:
                again = os.path.join(self.folder, "again")
                with open(again, "w", encoding="utf-8", newline="") as file:
                    file.write(out)
                if self.look("read again", word, [self.lint, *command, again]) != out:
                    self.wrong.append(f"{command} with {word!a} does not read back")
        self.look("spmdrun", word, [self.run_binary, path])
        self.look("spmdrun --dump-plan", word, [self.run_binary, "--dump-plan", path])

    def refused(self, word):
        """In what the readers refuse."""
        path = os.path.join(self.folder, "refused.spmd")
        for text in (
            malformed(word),
            json.dumps({"format": word, word: {word: word}, "meshes": [{"id": word, word: 1}]}),
            '{"' + word + '": "' + word + '\\q"}',
        ):
            with open(path, "w", encoding="utf-8") as out:
                out.write(text)
            for command in ("check", "validate", "fmt", "dump"):
                self.look(f"refused by {command}", word, [self.lint, command, path])
            for form in (*self.texts, *DOCUMENTS):
                self.look(
                    f"refused by {form}", word, [self.lint, "check", f"--format={form}", path]
                )
            self.look("refused by spmdrun", word, [self.run_binary, path])

    def outside(self, word):
        """In the names of files, and in words of the command line."""
        name = word.replace("/", "").replace("\0", "")
        path = os.path.join(self.folder, name + ".spmd")
        with open(path, "w", encoding="utf-8") as out:
            out.write("mesh m { tp = 4 }\n%x = input f32[8] P\n%y = gelu %x\n%z = nothing\n")
        good = os.path.join(self.folder, name + "2.spmd")
        with open(good, "w", encoding="utf-8") as out:
            out.write("mesh m { tp = 4 }\n%x = input f32[8] P\n%y = gelu %x\n")
        config = os.path.join(self.folder, name + ".toml")
        with open(config, "w", encoding="utf-8") as out:
            out.write(json.dumps(word) + " = 1\n")
        for file in (path, good, path + "absent"):
            for form in self.texts:
                self.look("path", word, [self.lint, "check", f"--format={form}", file])
            for form in DOCUMENTS:
                self.look(
                    f"path in {form}",
                    word,
                    [self.lint, "check", f"--format={form}", file],
                    document=True,
                )
            self.look("path of spmdrun", word, [self.run_binary, file])
        for arguments in (
            ["check", "--config=" + config, good],
            ["check", "--" + word, good],
            [word],
            ["explain", word],
            ["ops", word],
            ["check", "--format=" + word, good],
            ["check", f"--format=json:/absent/{word}", good],
            ["plan", word, "--mesh", word],
            ["config", "show", "--config=" + config],
            ["schema", word],
            ["check", "--select=" + word, good],
            ["help", word],
            ["fmt", "-o", "/absent/" + name, good],
        ):
            self.look(f"spmdlint {arguments[0]}", word, [self.lint, *arguments])
        for arguments in (
            ["--" + word, good],
            ["--backend=" + word, good],
            ["--input", word + "=absent.npy", good],
            ["--until=" + word, good],
            ["--trace-out=/absent/" + name, good],
        ):
            self.look("spmdrun's options", word, [self.run_binary, *arguments])


def main():
    lint, run_binary = (os.path.abspath(word) for word in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as folder:
        tests = Tests(lint, run_binary, folder)
        group = GROUP_SANITIZED if "--sanitized" in sys.argv else GROUP
        for i in range(0, len(CHARACTERS), group):
            word = "a" + "b".join(CHARACTERS[i : i + group]) + "c"
            tests.inside(word)
            tests.refused(word)
            tests.outside(word)
    for line in tests.wrong[:40]:
        print(line)
    print(f"{tests.tried - len(tests.wrong)} passed, {len(tests.wrong)} failed")
    return len(tests.wrong) > 0


if __name__ == "__main__":
    sys.exit(main())
