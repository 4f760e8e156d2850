"""Lets a CUDA build of torch load where its CUDA libraries are not installed.

A recording runs on the CPU, but the usual wheel refuses to load without several gigabytes of
CUDA libraries. When they are absent this module builds empty libraries of the same names, whose
functions all return an error code, and loads them first. It does nothing when torch is complete.
"""

import ctypes
import pathlib
import re
import subprocess
import tempfile

from ..recording import torch_without_cuda, without_standins

_NO_DEVICE = 100  # cudaErrorNoDevice: what the runtime answers on a machine without a GPU
_CUDA_NAME = re.compile(r"_*(cu|nccl|nv)")


def preload() -> bool:
    """Prepares the process so that `import torch` works; returns whether stand-ins were needed."""
    if (folder := torch_without_cuda()) is None:
        return False
    if reason := without_standins():
        raise ImportError(reason)
    _load_standins(folder)
    return True


def _output(*command: str) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def _load_standins(folder: pathlib.Path) -> None:
    functions: set[str] = set()
    libraries: set[str] = set()
    for library in sorted(folder.glob("*.so")):
        for line in _output("nm", "-D", "--undefined-only", "--format=posix", str(library)):
            name = line.split()[0].split("@")[0]
            if _CUDA_NAME.match(name):
                functions.add(name)
        for line in _output("readelf", "-d", str(library)):
            needed = re.search(r"\(NEEDED\).*\[lib(\S+)\]", line)
            if needed and _CUDA_NAME.match(needed.group(1)):
                libraries.add("lib" + needed.group(1))
    with tempfile.TemporaryDirectory() as scratch:
        source = pathlib.Path(scratch) / "standins.c"
        source.write_text("".join(f"int {f}() {{ return {_NO_DEVICE}; }}\n" for f in functions))
        _build_and_load(source, "spmd_trace_standins.so")
        source.write_text("")
        for name in sorted(libraries):
            _build_and_load(source, name)


def _build_and_load(source: pathlib.Path, name: str) -> None:
    """Compiles `source` as the shared library `name` and loads it for all later libraries."""
    target = source.parent / name
    flags = ["-w", "-fno-builtin", "-shared", "-nostdlib", f"-Wl,-soname,{name}"]
    subprocess.run(["cc", *flags, "-o", str(target), str(source)], check=True)
    ctypes.CDLL(str(target), mode=ctypes.RTLD_GLOBAL)
