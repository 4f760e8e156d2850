"""What a recording needs, says and leaves: versions of frameworks, files, exit codes."""

import ctypes
import importlib.metadata
import importlib.util
import os
import pathlib
import re
import shutil
import sys

FAILED = 3
IN_PART = 4  # recorded, but for some operations of which the trace says nothing
_OLDEST = {"torch": (2, 6), "jax": (0, 6)}  # what differs between later ones: versions.py of each
_BUILDERS = ("cc", "nm", "readelf")  # of stand-ins: torch/cuda_standins.py


def say(text: str) -> None:
    print(f"spmd-trace: {text}", file=sys.stderr)


def keep(trace: pathlib.Path, output: pathlib.Path) -> None:
    """Copies a trace beside its place, and then renames it: nothing half-written is ever there."""
    partial = output.with_name(output.name + ".partial")
    shutil.copyfile(trace, partial)
    partial.replace(output)


def missing_file(options, output: pathlib.Path | None = None) -> str:
    """What is not there of the script and the folder of the output; empty if both are."""
    if not options.module and not os.path.isfile(options.script):
        return f"{options.script}: no such file"
    if output is not None and not output.resolve().parent.is_dir():
        return f"{output}: no such folder"
    return ""


def unfit(package: str) -> str:
    """A sentence about a framework that is missing, or too old; empty if it can be used."""
    oldest = ".".join(map(str, _OLDEST[package]))
    remedy = f"pip install '{package}>={oldest}'"
    if importlib.util.find_spec(package) is None:
        return f"{package} is not installed: {remedy}"
    found = importlib.metadata.version(package)
    if tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < _OLDEST[package]:
        return f"{package} {found} is too old for recordings: {remedy}"
    return without_standins() if package == "torch" else ""


def torch_without_cuda() -> pathlib.Path | None:
    """The folder of torch's libraries, where these ask for CUDA's and do not find them."""
    spec = importlib.util.find_spec("torch")
    if "torch" in sys.modules or spec is None or spec.origin is None:
        return None
    folder = pathlib.Path(spec.origin).parent / "lib"
    if not (folder / "libtorch_cuda.so").exists():
        return None
    try:
        ctypes.CDLL(str(folder / "libtorch_cuda.so"))
    except OSError as error:
        if "cannot open shared object" not in str(error):
            raise
        return folder
    return None


def without_standins() -> str:
    """A sentence, where torch needs stand-ins of CUDA's libraries that cannot be built here."""
    lacking = next((tool for tool in _BUILDERS if shutil.which(tool) is None), None)
    if lacking is None or torch_without_cuda() is None:
        return ""
    return (
        f"torch lacks its CUDA libraries and `{lacking}` is not there to build stand-ins: "
        "install a C compiler, or torch with its dependencies"
    )
