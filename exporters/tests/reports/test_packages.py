"""The wheel of everything and the package of the recorders say the same of what they share; the
package for Debian has what the wheel has."""

import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest

from conftest import ROOT


def test_projects_agree():
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    recorders = tomllib.loads((ROOT / "exporters/pyproject.toml").read_text())["project"]
    for key in ("requires-python", "scripts", "entry-points"):
        assert whole[key] == recorders[key], key
    own = {
        name: [each for each in packages if not each.startswith(recorders["name"] + "[")]
        for name, packages in recorders["optional-dependencies"].items()
        if name != "test"
    }
    assert whole["optional-dependencies"] == own


PROGRAM = f"""#!{sys.executable}
import sys
print("spmdlint 1.2.3", *sys.argv[1:])
"""
METADATA = "Name: spmdlint\nVersion: 1.2.3\nSummary: A checker\nRequires-Python: >=3.11\n"
ENTRIES = "[console_scripts]\nspmd-trace = spmd_trace.command:main\n\n[pytest11]\na = b.c\n"


@pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="there is no dpkg-deb")
def test_the_debian_package_has_what_the_wheel_has(tmp_path):
    wheel = tmp_path / "spmdlint-1.2.3-py3-none-manylinux_2_36_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        data = "spmdlint-1.2.3.data"
        recorder = f"{data}/purelib/spmd_trace"
        file.writestr(f"{recorder}/__init__.py", "")
        file.writestr(f"{recorder}/command.py", "def main():\n    print('recorded')\n")
        file.writestr(f"{data}/scripts/spmdlint", PROGRAM)
        file.writestr(f"{data}/data/share/man/man1/spmdlint.1", ".TH spmdlint 1\n")
        file.writestr(f"{data}/data/share/doc/spmdlint/notices/zlib.txt", "terms")
        file.writestr("spmdlint-1.2.3.dist-info/METADATA", METADATA)
        file.writestr("spmdlint-1.2.3.dist-info/entry_points.txt", ENTRIES)
    made = subprocess.run(
        [ROOT / "runtime/deb.sh", wheel, tmp_path / "out"], capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    package = made.stdout.strip()
    asked = ["Package", "Version", "Depends", "Recommends", "Description"]
    fields = subprocess.run(
        ["dpkg-deb", "-f", package, *asked], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert fields == [
        "Package: spmdlint",
        "Version: 1.2.3",
        "Depends: libc6 (>= 2.36)",
        "Recommends: python3 (>= 3.11)",
        "Description: A checker",
    ]
    tree = tmp_path / "tree"
    subprocess.run(["dpkg-deb", "-x", package, tree], check=True)
    files = sorted(str(one.relative_to(tree)) for one in tree.rglob("*") if one.is_file())
    assert files == [
        "usr/bin/spmd-trace",
        "usr/bin/spmdlint",
        "usr/lib/python3/dist-packages/spmd_trace/__init__.py",
        "usr/lib/python3/dist-packages/spmd_trace/command.py",
        "usr/share/doc/spmdlint/notices/zlib.txt",
        "usr/share/man/man1/spmdlint.1.gz",
    ]
    said = subprocess.run([tree / "usr/bin/spmdlint", "--version"], capture_output=True, text=True)
    assert said.stdout == "spmdlint 1.2.3 --version\n"
    said = subprocess.run(
        [sys.executable, tree / "usr/bin/spmd-trace"],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(tree / "usr/lib/python3/dist-packages")},
    )
    assert said.stdout == "recorded\n"
