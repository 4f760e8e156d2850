# Runs the transcripts of a folder: `$ spmdlint ...` or `$ spmdrun ...` and, up to the next such
# line, what it printed (stdout before stderr) and its exit code. Arguments: the binary, by whose
# name it is called; the folder (that of this file); `--update` writes what is printed now.
import pathlib
import subprocess
import sys
import tempfile

_KINDS = ("*.spmd*", "*.toml", "*.npy", "script.py")  # of the files that commands read


def run(command, binary, copy):
    """The block of one command, which sees a copy of the folder as its own."""
    words = f'{binary.name}() {{ "{binary}" "$@"; }}; {command}'
    done = subprocess.run(
        ["sh", "-c", words],
        cwd=copy,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "TERM": "dumb"},
    )
    text = done.stdout + done.stderr
    if text and not text.endswith("\n"):
        text += "\n"
    return f"$ {command}\n{text}[exit {done.returncode}]\n"


def replay(path, binary, folder):
    commands = [line[2:] for line in path.read_text().splitlines() if line.startswith("$ ")]
    with tempfile.TemporaryDirectory() as copy:
        for file in (one for kind in _KINDS for one in folder.glob(kind)):
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
    update = "--update" in sys.argv
    words = [word for word in sys.argv[1:] if word != "--update"]
    binary = pathlib.Path(words[0]).resolve()
    folder = pathlib.Path(words[1] if len(words) > 1 else __file__).resolve()
    folder = folder if folder.is_dir() else folder.parent
    failed = passed = 0
    for path in sorted(folder.glob("*.txt")):
        have = replay(path, binary, folder)
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
