# Runs the transcripts beside this file: `$ spmdlint ...` and, up to the next such line, what it printed (stdout
# before stderr) and its exit code. Arguments: the binary; `--update` writes what is printed now.
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def run(command, binary, copy):
    """The block of one command, which sees a copy of this folder as its own."""
    words = f'spmdlint() {{ "{binary}" "$@"; }}; {command}'
    done = subprocess.run(["sh", "-c", words], cwd=copy, capture_output=True, text=True, check=False,
                          env={"PATH": "/usr/bin:/bin", "TERM": "dumb"})
    text = done.stdout + done.stderr
    if text and not text.endswith("\n"):
        text += "\n"
    return f"$ {command}\n{text}[exit {done.returncode}]\n"


def replay(path, binary):
    commands = [line[2:] for line in path.read_text().splitlines() if line.startswith("$ ")]
    with tempfile.TemporaryDirectory() as copy:
        for file in [*HERE.glob("*.spmd*"), *HERE.glob("*.toml")]:
            (pathlib.Path(copy) / file.name).write_bytes(file.read_bytes())
        return "\n".join(run(command, binary, copy) for command in commands)


def first_difference(wanted, have):
    wanted, have = wanted.splitlines(), have.splitlines()
    for number in range(max(len(wanted), len(have))):
        left, right = (lines[number] if number < len(lines) else "" for lines in (wanted, have))
        if left != right:
            return f"line {number + 1}:\n  - {left}\n  + {right}"
    return "line feeds differ"


def main():
    binary = str(pathlib.Path(sys.argv[1]).resolve())
    update = "--update" in sys.argv
    failed = passed = 0
    for path in sorted(HERE.glob("*.txt")):
        have = replay(path, binary)
        if update:
            path.write_text(have)
        if have == path.read_text():
            passed += 1
        else:
            failed += 1
            print(f"{path.name}: {first_difference(path.read_text(), have)}")
    print(f"{passed} passed, {failed} failed")
    return failed > 0


sys.exit(main())
