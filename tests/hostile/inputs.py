"""Files that are none, that never end, that change, that hold too much: SPMDLINT SPMDRUN. Each run
ends by itself with a sentence and a documented exit code, within a bounded time and memory."""

import gzip
import os
import pathlib
import re
import resource
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time

MIB = 1 << 20
PROGRAM = "mesh m { tp = 4 }\n%x = input f32[8] P\n%y = gelu %x\n"
UNSTATED = (
    "trace { mode = local }\nmesh m { tp = 4 }\n%x = input f32[8] P\n"
    "%y = all_reduce %x { axis = tp }\n%z = gelu %y\n"
)
LOSS = "mesh m { tp = 4 }\n%x = param f32[8] I\n%y = reduce_sum %x\noutput loss %y\n"
CLEAN = "mesh m { tp = 4 }\n%x = input f32[8] R\n%y = gelu %x\n"


class Tests:
    def __init__(self, lint, run_binary, folder):
        self.lint, self.run_binary, self.folder = lint, run_binary, folder
        self.tried, self.wrong = 0, []

    def path(self, name, content=None):
        path = os.path.join(self.folder, name)
        if content is not None:
            with open(path, "wb") as out:
                out.write(content if isinstance(content, bytes) else content.encode())
        return path

    def expect(self, what, arguments, code, words="", memory=None, peak=None, seconds=60, **more):
        """`memory`: bytes of addresses that the process may take; `peak`: MiB that it may have
        used."""
        self.tried += 1

        def limit():
            if memory:
                resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        more.setdefault("stdin", subprocess.DEVNULL)
        more.setdefault("stdout", subprocess.PIPE)
        process = subprocess.Popen(
            arguments, stderr=subprocess.PIPE, preexec_fn=limit, cwd=self.folder, **more
        )
        killer = threading.Timer(seconds, process.kill)
        killer.start()
        outputs = {}
        readers = [
            threading.Thread(
                target=lambda name=name, file=file: outputs.update({name: file.read()})
            )
            for name, file in (("out", process.stdout), ("err", process.stderr))
            if file
        ]
        for reader in readers:
            reader.start()
        _, status, usage = os.wait4(process.pid, 0)  # what this process used, and no other
        process.returncode = os.waitstatus_to_exitcode(status)
        late = not killer.is_alive()
        killer.cancel()
        for reader in readers:
            reader.join()
        err = outputs["err"].decode(errors="replace")
        if late:
            self.wrong.append(f"{what}: no end within {seconds} s")
            return
        codes = code if isinstance(code, tuple) else (code,)
        if "Sanitizer" in err:  # which ends a process with exit code 1, as findings do
            self.wrong.append(f"{what}: {err[:300]!r}")
        elif process.returncode not in codes:
            self.wrong.append(f"{what}: exit code {process.returncode}, not {code}: {err[:300]!r}")
        elif words not in err:
            self.wrong.append(f"{what}: {words!r} is not in {err[:300]!r}")
        used = usage.ru_maxrss // 1024
        if peak and used > peak:
            self.wrong.append(f"{what}: a process used {used} MiB, {peak} are allowed")

    # --- what is no file, or no text

    def odd_files(self):
        absent, empty = self.path("absent.spmd"), self.path("empty.spmd", "")
        good = self.path("good.spmd", PROGRAM)
        for binary in (self.lint, self.run_binary):
            self.expect("absent file", [binary, absent], 3, "no such file or directory")
            self.expect("/proc/self/mem", [binary, "/proc/self/mem"], 3, "error")
            for name, text in (
                ("UTF-16", PROGRAM.encode("utf-16")),
                ("UTF-16, no mark", PROGRAM.encode("utf-16-le")),
                ("UTF-32", PROGRAM.encode("utf-32")),
                ("Latin-1", "// \u00e9\n".encode("latin-1")),
                ("NUL bytes", b"mesh m { tp = 4 }\n\0\0\0\n"),
                ("NUL in a string", b'%x = input f32[8] R "a\0b"\n'),
                ("NUL in JSON", b'{"a": "\0"}'),
                ("a lone brace", b"{"),
                ("random bytes", bytes(range(256)) * 40),
            ):
                self.expect(name, [binary, self.path("odd.spmd", text)], 3, "error[trace-")
        self.expect("folder", [self.lint, "fmt", self.folder], 3, "is a directory")
        self.expect("folder", [self.run_binary, self.folder], 3, "is a directory")
        self.expect("empty file", [self.lint, empty], (0, 3))
        self.expect(
            "byte order mark", [self.lint, self.path("bom.spmd", "\ufeff" + PROGRAM)], (1, 3)
        )
        self.expect(
            "line feeds of Windows",
            [self.lint, self.path("crlf.spmd", PROGRAM.replace("\n", "\r\n"))],
            1,
        )
        if os.geteuid() != 0:
            os.chmod(good, 0)
            self.expect("unreadable file", [self.lint, good], 3, "permission denied")
            os.chmod(good, stat.S_IRUSR | stat.S_IWUSR)
        self.expect("a path through a file", [self.lint, good + "/x.spmd"], 3, "not a directory")
        self.expect("a long path", [self.lint, "/" + "x" * 5000], 3, "too long")
        loop = self.path("loop.spmd")
        os.symlink(loop, loop)
        self.expect("a link to itself", [self.lint, loop], 3, "symbolic links")

    def pipes(self):
        fifo = self.path("fifo.spmd")
        os.mkfifo(fifo)

        def write():
            with open(fifo, "w", encoding="utf-8") as out:
                out.write(PROGRAM)

        writer = threading.Thread(target=write)
        writer.start()
        self.expect("a named pipe", [self.lint, fifo], 1)
        writer.join()
        self.expect(
            "standard input", [self.lint, "-"], 1, stdin=open(self.path("good.spmd", PROGRAM), "rb")
        )
        self.expect("no standard input", ["sh", "-c", '"$0" check - <&-', self.lint], 3)

    # --- what never ends, or holds too much

    def interrupted(self):
        """While the second of three inputs is read: it is still checked, and the third is not."""
        first, last = self.path("first.spmd", PROGRAM), self.path("last.spmd", PROGRAM)
        pipe = self.path("interrupted.spmd")
        os.mkfifo(pipe)
        kept = self.path("kept.json")
        for options in ([], [f"--baseline={kept}", "--write-baseline"]):
            self.tried += 1
            process = subprocess.Popen(
                [self.lint, "check", *options, first, pipe, last],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            with open(pipe, "w") as out:  # opens when the tool does
                process.send_signal(signal.SIGINT)
                out.write(CLEAN)
            out, err = process.communicate(timeout=60)
            said = process.returncode, "first.spmd:3" in out, "last.spmd" in out + err
            if said != (130, True, False) or "interrupted: 2 of 3 inputs were checked" not in err:
                self.wrong.append(f"interrupted: {process.returncode}: {out!r} {err!r}")
        if os.path.exists(kept):
            self.wrong.append("interrupted: a baseline of some inputs was written")

    def endless(self):
        limit = str(64 * MIB)
        for binary in (self.lint,):
            self.expect(
                "/dev/zero",
                [binary, "check", "--max-input=" + limit, "/dev/zero"],
                3,
                "--max-input",
                peak=300,
            )
            self.expect(
                "/dev/zero as it is", [binary, "check", "/dev/zero"], 3, "--max-input", peak=1400
            )
        self.expect("/dev/zero", [self.run_binary, "/dev/zero"], 3, "--max-input", peak=1400)
        self.expect(
            "/dev/zero as data",
            [self.run_binary, "--input", "x=/dev/zero", self.path("clean.spmd", CLEAN)],
            2,
        )
        self.expect(
            "an endless configuration",
            [self.lint, "check", "--config=/dev/zero", self.path("good.spmd")],
            2,
            "bytes",
        )
        large = self.path("large.spmd")
        with open(large, "wb") as out:
            out.truncate(2 << 30)  # of no blocks
        self.expect("a file of 2 GiB", [self.lint, large], 3, "--max-input")
        os.unlink(large)

    def bombs(self):
        member = gzip.compress(b" " * (16 * MIB), 9)
        packed = self.path("bomb.spmd.gz", member * 200)
        self.expect("a gzip bomb", [self.lint, "check", packed], 3, "trace-limit", peak=1400)
        self.expect(
            "a gzip bomb, limited",
            [self.lint, "check", f"--max-input={64 * MIB}", packed],
            3,
            "trace-limit",
        )
        # What passes as a ratio may still be too large.
        member = gzip.compress(os.urandom(1 << 17) + b" " * (16 * MIB), 1)
        packed = self.path("bomb.spmd.gz", member * 80)
        self.expect(
            "many compressed bytes", [self.lint, "check", packed], 3, "--max-input", peak=1400
        )
        os.unlink(packed)
        self.expect(
            "a magic number alone", [self.lint, self.path("short.gz", b"\x1f\x8b")], 3, "error["
        )
        self.expect(
            "a magic number alone",
            [self.lint, self.path("short.zst", b"\x28\xb5\x2f\xfd")],
            3,
            "error[",
        )
        inner = gzip.compress(gzip.compress(PROGRAM.encode()))
        self.expect(
            "compressed twice", [self.lint, self.path("twice.gz", inner)], 3, "more than once"
        )

    # --- what changes

    def cut_files(self):
        """A file that becomes shorter while it is read, at whatever moment."""
        text = PROGRAM + "".join(f"%n{i} = neg %x\n" for i in range(400000))
        for delay in (0.002, 0.01, 0.03, 0.08, 0.2):
            path = self.path("cut.spmd", text)
            cutter = threading.Timer(delay, lambda path=path: os.truncate(path, 100))
            cutter.start()
            self.expect(f"cut after {delay} s", [self.lint, "check", "--no-fixes", path], (0, 1, 3))
            cutter.join()

    def judged_by_meaning(self):
        cases = pathlib.Path(__file__).resolve().parents[1] / "cases"
        named = [path for path in (cases / "cli").glob("*.spmd") if "gradual" in path.read_text()]
        return sorted((cases / "checker/gradual").glob("*.spmd")) + sorted(named)

    def numbers_for_tensors(self):
        """The same programs, where each instruction in turn takes a number in place of its first
        tensor, of all of them, or nothing at all."""
        tensor = re.compile(r"(?<= )%[\w.]+(?=[ ,\n]|$)")
        for program in self.judged_by_meaning():
            lines = program.read_text().splitlines()
            paths = []
            for place, line in enumerate(lines):
                made, _, call = line.partition(" = ")
                if not made.lstrip().startswith("%") or not tensor.search(" " + call):
                    continue
                op, _, operands = call.partition(" ")
                behind = operands.find("{")
                taken, words = operands[:behind], operands[behind:]
                if behind < 0:
                    taken, words = operands.partition(" //")[0], ""
                numbers = [tensor.sub("3", " " + taken, times) for times in (1, 0)]
                for which, others in enumerate([*numbers, " "]):
                    text = [*lines[:place], f"{made} = {op}{others}{words}", *lines[place + 1 :]]
                    paths.append(self.path(f"{place}.{which}.spmd", "\n".join(text) + "\n"))
            self.expect(program.name, [self.lint, "check", "--no-fixes", *paths], (0, 1, 3, 4))

    def in_functions(self):
        """The same programs, which then call a function that does all of it once more."""
        declared = re.compile(
            r"(%[\w.]+) = (?:input|param|buffer|const|opt_state) (\w+\[[^\]]*\])(?= |$)"
        )
        for program in self.judged_by_meaning():
            lines = program.read_text().splitlines()
            found = {place: declared.match(line) for place, line in enumerate(lines)}
            inputs = {place: one for place, one in found.items() if one}
            first = min(inputs, default=len(lines))
            body = [
                line
                for place, line in enumerate(lines[first:], first)
                if place not in inputs and not line.startswith("output")
            ]
            names = [one[1] for one in inputs.values()]
            types = [re.sub(r"@(\([^)]*\)|\w+)", "", one[2]) for one in inputs.values()]
            taken = ", ".join(f"{name}: {type}" for name, type in zip(names, types))
            function = [f"func @again({taken}) {{", *body, f"  return {', '.join(names[:1])}", "}"]
            outputs = [line for line in lines if line.startswith("output")]
            main = [line for line in lines[first:] if line not in outputs]
            call = f"%again = call {', '.join(names)} {{ body = @again }}"
            text = "\n".join([*lines[:first], *function, *main, call, *outputs])
            path = self.path("again.spmd", text + "\n")
            self.expect(program.name, [self.lint, "check", "--no-fixes", path], (0, 1, 3, 4))

    def large_numbers(self):
        """The same programs with the largest numbers in place of their own, and what takes one of
        them twice over."""
        number = re.compile(r"(?<=[,=\[] )-?\d+(?=[\s,\]}]|$)")
        for program in self.judged_by_meaning():
            for large in (2**31, 2**53 - 1, 1 - 2**53):
                lines = [
                    number.sub(str(large), line) if line.lstrip().startswith("%") else line
                    for line in program.read_text().splitlines()
                ]
                text = re.sub(
                    r"(?m)^(%\w+)( = \S+) (%\w+), (-?\d+)",
                    r"\1.once\2 \3, \4\n\1\2 \1.once, \4",
                    "\n".join(lines) + "\n",
                )
                path = self.path("large.spmd", text)
                self.expect(f"{large} in {program.name}", [self.lint, "check", path], (0, 1, 3, 4))

    # --- memory

    def little_memory(self):
        text = PROGRAM + "".join(f"%n{i} = neg %x\n" for i in range(400000))
        path = self.path("many.spmd", text)
        for mib in (30, 45, 60, 90, 150):
            for command in (["check"], ["fmt", "--to=json", "-o", "/dev/null"], ["dump"]):
                self.expect(
                    f"{command[0]} in {mib} MiB",
                    [self.lint, *command, path],
                    (0, 1, 3),
                    memory=mib * MIB,
                )
        packed = self.path("many.spmd.gz", gzip.compress(text.encode()))
        self.expect("unpacked in 60 MiB", [self.lint, "check", packed], (1, 3), memory=60 * MIB)

    # --- paths and outputs

    def outputs(self):
        for name in ("50%.spmd", "%%%%%%", "a%s%n%d", "with blank", "-", "x" * 250):
            source = self.path("good.spmd", PROGRAM)
            target = self.path(os.path.join("percent%%", name))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            self.expect(f"to {name}", [self.lint, "fmt", "-o", target, source], 0)
            if not os.path.exists(target):
                self.wrong.append(f"{name} was not written")
            self.expect(f"from {name}", [self.lint, "check", target], 1)
            self.expect(
                f"report to {name}", [self.lint, "check", f"--format=json:{target}", source], 1
            )
        left = [name for name in os.listdir(self.path("percent%%")) if name.endswith(".part")]
        if left:
            self.wrong.append(f"files are left behind: {left}")
        good = self.path("good.spmd", PROGRAM)
        for arguments in (
            ["check", "--format=json", good],
            ["check", "--format=full", good],
            ["dump", good],
            ["check", "--annotate", "--quiet", self.path("unstated.spmd", UNSTATED)],
            ["check", "--diff", good],
            ["report", good],
            ["cost", good],
            ["summary", good],
            ["reveal", good, "%x"],
            ["diff", good, self.path("clean.spmd", CLEAN)],
            ["elaborate", good],
            ["backward", self.path("loss.spmd", LOSS)],
            ["validate", good],
            ["plan", "f32[8] P -> f32[8] R", "--mesh", "tp=4"],
            ["ops"],
            ["ops", "gelu"],
            ["ops", "all_reduce"],
            ["explain"],
            ["explain", "gelu"],
            ["config", "init"],
            ["completions", "bash"],
            ["man"],
            ["schema", "trace"],
            ["help"],
            ["version"],
        ):
            with open("/dev/full", "wb") as full:
                self.expect(
                    f"{arguments[0]} to a full device",
                    [self.lint, *arguments],
                    2,
                    "no space left",
                    stdout=full,
                )
            read, write = os.pipe()
            os.close(read)
            self.expect(
                f"{arguments[0]} to a closed pipe", [self.lint, *arguments], (0, 1), stdout=write
            )
            os.close(write)
        with open("/dev/full", "wb") as full:
            self.expect(
                "spmdrun to a full device",
                [self.run_binary, "--help"],
                2,
                "no space left",
                stdout=full,
            )
        self.expect(
            "report to a full device",
            [self.lint, "check", "--format=json:/dev/full", good],
            2,
            "no space left",
        )
        self.expect(
            "fmt to a full device", [self.lint, "fmt", "-o", "/dev/full", good], 2, "no space left"
        )
        self.expect("to a folder", [self.lint, "fmt", "-o", self.folder, good], 2, "is a directory")

    # --- an editor that is none

    def language_server(self):
        body = b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}'
        good = b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        for name, stream, code, words in (
            ("nothing", b"", 1, ""),
            ("a message, and no goodbye", good, 1, ""),
            ("a header that is cut", b"Content-Le", 3, "ends within a message"),
            ("a message that is cut", good[:-5], 3, "ends within a message"),
            ("no length", b"Content-Type: x\r\n\r\n{}", 3, "has no Content-Length"),
            ("two lengths", b"Content-Length: 2\r\ncontent-length: 2\r\n\r\n{}", 3, "two lengths"),
            ("a negative length", b"Content-Length: -2\r\n\r\n{}", 3, "is not a number"),
            (
                "a length of many digits",
                b"Content-Length: %s\r\n\r\n" % (b"9" * 99),
                3,
                "is not a number",
            ),
            ("a length of 2^60", b"Content-Length: %d\r\n\r\n" % 2**60, 3, "--max-input allows"),
            ("a long header", b"x" * 100000, 3, "no message header ends"),
            ("bytes", bytes(range(256)) * 40, 3, "no message header ends"),
            ("no UTF-8", b"Content-Length: 4\r\n\r\n\xff\xfe{}" + good, 1, ""),
        ):
            read, write = os.pipe()
            writer = threading.Thread(target=self.write_all, args=(write, stream))
            writer.start()
            self.expect(f"lsp: {name}", [self.lint, "lsp"], code, words, peak=200, stdin=read)
            os.close(read)
            writer.join()
        # What is announced is not taken before it comes.
        announced = self.path("announced", b"Content-Length: 1000000000\r\n\r\n{")
        with open(announced, "rb") as file:
            self.expect(
                "lsp: a GB", [self.lint, "lsp"], 3, "within a message", peak=100, stdin=file
            )

    @staticmethod
    def write_all(file, data):
        try:
            with open(file, "wb") as out:
                out.write(data)
        except BrokenPipeError:
            pass

    # --- configurations

    def configurations(self):
        good = self.path("good.spmd", PROGRAM)
        for name, text in (
            ("a key of a million parts", "a." * 1000000 + "b = 1\n"),
            ("a key of 65 parts", "a." * 100 + "b = 1\n"),
            ("a table of many parts", "[" + "a." * 5000 + "b]\n"),
            ("lists in lists", "select = " + "[" * 100000 + "]" * 100000 + "\n"),
            ("tables in tables", "a = " + "{b = " * 5000 + "1" + "}" * 5000 + "\n"),
            (
                "parts in lists",
                "a = " + ("[{" + "b." * 60 + "c = ") * 200 + "1" + "}]" * 200 + "\n",
            ),
            ("no text", bytes(range(256))),
            ("UTF-16", "strict = true".encode("utf-16")),
            ("a file to write", 'format = "concise:stolen"\n'),
            ("a list of files to write", 'format = ["full", "concise:stolen"]\n'),
            ("a source root", 'source-root = "/"\n'),
        ):
            path = self.path("c.toml", text)
            self.expect(
                f"configuration: {name}",
                [self.lint, "check", "--config=" + path, good],
                2,
                "c.toml",
            )
            if os.path.exists(self.path("stolen")):
                self.wrong.append(f"{name}: a configuration wrote a file")
        os.makedirs(self.path("theirs"), exist_ok=True)
        own = self.path("theirs/p.spmd", PROGRAM)
        self.path("theirs/spmdlint.toml", 'exit-zero = true\nselect = "needless-partial"\n')
        self.expect("a configuration beside the input", [self.lint, "check", own], 1, "is not used")
        self.expect(
            "the same, named", [self.lint, "check", "--config=theirs/spmdlint.toml", own], 0
        )


def main():
    lint, run_binary = (os.path.abspath(word) for word in sys.argv[1:3])
    wrong = tried = 0
    sanitized = "--sanitized" in sys.argv  # which takes addresses and memory of its own
    parts = [word for word in sys.argv[3:] if word != "--sanitized"]
    for part in (
        "odd_files",
        "pipes",
        "interrupted",
        "outputs",
        "language_server",
        "configurations",
        "bombs",
        "cut_files",
        "numbers_for_tensors",
        "in_functions",
        "large_numbers",
        "little_memory",
        "endless",
    ):
        if (parts and part not in parts) or (
            sanitized and part in ("little_memory", "endless", "bombs")
        ):
            continue
        with tempfile.TemporaryDirectory() as folder:
            tests = Tests(lint, run_binary, folder)
            begin = time.monotonic()
            getattr(tests, part)()
            for line in tests.wrong:
                print(line)
            print(f"{part}: {tests.tried} runs, {time.monotonic() - begin:.0f} s")
            tried += tests.tried
            wrong += len(tests.wrong)
    print(f"{tried - wrong} passed, {wrong} failed")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
