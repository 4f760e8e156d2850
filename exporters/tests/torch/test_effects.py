"""What a script would leave behind, and does not; what hangs at its end."""

import os
import pathlib
import subprocess
import sys
import time

import pytest

_HEAD = """
import os, pathlib, shutil, sys, time, numpy, torch
here = pathlib.Path(__file__).parent
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 2)).square().sum().backward()
        optimizer.step()
"""


def _record(folder, code: str, *words, modules: dict[str, str] | None = None):
    (folder / "script.py").write_text(_HEAD + code)
    for name, text in (modules or {}).items():
        target = folder / "packages" / f"{name}.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    paths = [str(folder / "packages"), *filter(None, [os.environ.get("PYTHONPATH")])]
    line = [sys.executable, "-m", "spmd_trace", "record", "--world", "2", "--ranks", "one", *words]
    start = time.monotonic()
    done = subprocess.run(
        [*line, "script.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    return done, time.monotonic() - start


def _files(folder) -> dict[str, str]:
    found = {}
    for path in sorted(pathlib.Path(folder).rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not name.startswith(("packages", "script.py", "step.spmd.json")):
            found[name] = path.read_text() if path.is_file() else "folder"
    return found


def test_what_a_package_writes_beside_the_script_is_kept_from_happening(tmp_path):
    (tmp_path / "old.txt").write_text("old")
    (tmp_path / ".cache").mkdir()
    code = """
import jinja2
train(1)
for name in ("old.txt", "new.txt", ".cache/kept.txt"):
    jinja2.Template("written").stream().dump(name)
assert pathlib.Path("old.txt").read_text() == pathlib.Path("new.txt").read_text() == "written"
train(2)
"""
    done, _ = _record(tmp_path, code)
    assert done.returncode == 0, done.stderr
    expected = {"old.txt": "old", ".cache": "folder", ".cache/kept.txt": "written"}
    assert _files(tmp_path) == expected
    assert "old.txt" in done.stderr and "new.txt" in done.stderr


_WRITES = """
os.makedirs(here / "out" / "deep", exist_ok=True)
torch.save(model.state_dict(), here / "old.pt")
torch.save(model.state_dict(), "out/new.pt")
numpy.save("out/array.npy", numpy.zeros(3))
with open("log.txt", "a") as log:
    log.write("a line")
pathlib.Path("loss.csv").write_text("1")
model.load_state_dict(torch.load("out/new.pt"))
assert open("log.txt").read() == "was here\\na line"
os.replace("out/new.pt", "old.pt")
torch.load("old.pt")
train(3)
"""


def test_what_is_written_goes_elsewhere(tmp_path):
    before = {"old.pt": "a checkpoint", "log.txt": "was here\n"}
    for name, text in before.items():
        (tmp_path / name).write_text(text)
        os.utime(tmp_path / name, (1, 1))
    done, _ = _record(tmp_path, _WRITES)
    assert done.returncode == 0, done.stderr
    assert _files(tmp_path) == before
    (line,) = done.stderr.splitlines()
    assert line == (
        "spmd-trace: kept from happening: torch.save of old.pt (script.py:13); "
        "torch.save of out/new.pt (script.py:14); numpy.save of out/array.npy (script.py:15); "
        "open of log.txt (script.py:16); open of loss.csv (script.py:18); "
        "os.replace of old.pt (script.py:21)"
    )


_DELETES = """
os.remove("keep/a.pt")
pathlib.Path("keep/b.pt").unlink()
shutil.rmtree(here / "keep")
os.rename("keep/a.pt", "gone.pt")
with open("mine.txt", "w") as file:
    file.write("x")
os.remove("mine.txt")
os.mkdir("own")
shutil.rmtree("own")
assert not os.path.exists("own")
import tempfile
with tempfile.TemporaryDirectory() as scratch:
    open(os.path.join(scratch, "x"), "w").close()
assert not os.path.exists(scratch)
train(3)
"""


def test_nothing_is_deleted_that_was_there(tmp_path):
    (tmp_path / "keep").mkdir()
    for name in ("a.pt", "b.pt"):
        (tmp_path / "keep" / name).write_text(name)
        os.utime(tmp_path / "keep" / name, (1, 1))
    done, _ = _record(tmp_path, _DELETES)
    assert done.returncode == 0, done.stderr
    assert _files(tmp_path) == {"keep": "folder", "keep/a.pt": "a.pt", "keep/b.pt": "b.pt"}
    for text in ("os.remove of keep/a.pt", "os.unlink of keep/b.pt", "shutil.rmtree of keep"):
        assert text in done.stderr
    assert "own" not in done.stderr and len(done.stderr.splitlines()) == 1


# Packages that may not be installed, as far as a script calls them.
_WANDB = "def init(**words):\n    assert words['mode'] == 'disabled'\n    return None\n"
_MLFLOW = """
import os
def set_tracking_uri(uri):
    assert "scratch" in uri
def start_run():
    return None
"""
_TENSORS = "def save_file(tensors, filename):\n    open(filename, 'w').close()\n"
_WRITER = """
import os
class SummaryWriter:
    def __init__(self, log_dir=None):
        os.makedirs(log_dir)
"""
_PACKAGES = {"wandb": _WANDB, "mlflow": _MLFLOW, "safetensors/torch": _TENSORS}
_PACKAGES["tensorboardX/writer"] = _WRITER
_LOGS = """
import wandb, mlflow
from safetensors.torch import save_file
from tensorboardX.writer import SummaryWriter
import torch.distributed.checkpoint as dcp
save_file({}, "x.safetensors")
SummaryWriter("runs/first")
wandb.init(project="x", mode="online")
mlflow.set_tracking_uri("http://tracking.invalid")
mlflow.start_run()
dcp.save(model.state_dict(), checkpoint_id="dcp")
train(3)
"""


def test_loggers_upload_nothing(tmp_path):
    done, _ = _record(tmp_path, _LOGS, modules=_PACKAGES)
    assert done.returncode == 0, done.stderr
    assert _files(tmp_path) == {}
    assert "SummaryWriter of runs/first (" in done.stderr
    assert "safetensors.torch.save_file of x.safetensors (" in done.stderr
    for text in (
        "wandb.init (",
        "mlflow.set_tracking_uri (",
        "mlflow.start_run (",
        "save of dcp (",
    ):
        assert text in done.stderr


_HANGS = """
import atexit
atexit.register(time.sleep, 1000)
try:
    train(1)
    optimizer.zero_grad()
    model(torch.randn(4, 3))
finally:
    time.sleep(1000)
"""


def test_what_hangs_after_a_failure_is_not_waited_for(tmp_path):
    done, seconds = _record(tmp_path, _HANGS)
    assert done.returncode == 3 and seconds < 60
    # The words of torch differ between its versions.
    assert done.stderr.startswith("spmd-trace: script.py:17: the script raises RuntimeError: ")
