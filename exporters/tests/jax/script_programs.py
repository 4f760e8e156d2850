"""The scripts of examples/jax/scripts: as they are or with a mistake, checked by JAX in their
shard_maps or not, recorded, and run on eight devices and on one.
"""

import contextlib
import functools
import importlib.util
import inspect
import io
import math
import pathlib
import re
import sys
import tomllib

import jax
import numpy as np

from spmd_trace.jax.runs import script

FOLDER = pathlib.Path(__file__).parents[3] / "examples" / "jax" / "scripts"
PATHS = {path.stem: path for path in FOLDER.rglob("*.py")}
NAMES = sorted(PATHS)
MISTAKES = {
    f"{program}.{mistake}": entry
    for program, entries in tomllib.loads((FOLDER / "mistakes.toml").read_text()).items()
    for mistake, entry in entries.items()
}

# Right where JAX checks them, too: their gradients are taken outside, or they have none.
RIGHT_CHECKED = [
    "conjugate_gradient",
    "constraints",
    "distillation",
    "kmeans",
    "linen_data_parallel",
    "linen_tensor_parallel",
    "lora",
]


def text(name: str, checked=False) -> str:
    """Of a script, or of a script with a mistake: `kmeans.own_counts`. checked: JAX checks its
    shard_maps."""
    source = PATHS[name.partition(".")[0]].read_text()
    if name in MISTAKES:
        mistake = MISTAKES[name]
        assert source.count(mistake["was"]) == 1, f"{name}: what it replaces stands there once"
        source = source.replace(mistake["was"], mistake["now"])
    return source.replace("check_vma=False", "check_vma=True") if checked else source


def missing_libraries(name: str) -> list[str]:
    """What a script imports and is not installed."""
    source = PATHS[name].read_text()
    imported = {one for line in source.splitlines() if (one := _imported(line))}
    return sorted(one for one in imported if importlib.util.find_spec(one) is None)


def _imported(line: str) -> str | None:
    word, _, rest = line.partition(" ")
    return re.split(r"[. ]", rest)[0] if word in ("import", "from") else None


def written(name: str, folder: pathlib.Path, checked=False) -> pathlib.Path:
    path = folder / f"{name.replace('.', '__')}.py"
    path.write_text(text(name, checked))
    return path


def _main(path: pathlib.Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module.main


def results(path: pathlib.Path, one_device=False) -> list:
    """What its `main` returns, on its own mesh or on one of one device."""
    main = _main(path)
    axes = [
        one for one in inspect.signature(main).parameters if one not in ("steps", "turns", "micro")
    ]
    return jax.tree.leaves(main(**dict.fromkeys(axes, 1) if one_device else {}))


class _Recorded(BaseException):
    pass


class _FirstCall(script.Calls):
    """Records as `spmd-trace lint` does, and goes no further than the first step."""

    def record(self, function, args, kwargs) -> None:
        before = len(self.outcome["traces"])
        super().record(function, args, kwargs)
        of_step = function.__name__ != "<lambda>"  # and not what makes parameters
        if of_step and (len(self.outcome["traces"]) > before or self.outcome["refused"]):
            raise _Recorded


def recorded(name: str, folder: pathlib.Path, checked=False) -> pathlib.Path:
    """The trace of the first step."""
    path = written(name, folder, checked)
    calls = _FirstCall(folder / path.stem)
    calls.folder.mkdir()
    with (
        script.watching(calls),
        contextlib.suppress(_Recorded),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        _main(path)()
    assert calls.outcome["traces"], f"{name}: {calls.outcome['refused']}"
    return calls.folder / calls.outcome["traces"][-1]


@functools.cache
def expected(program: str, folder: pathlib.Path) -> tuple:
    """What the script returns on one device."""
    found = results(written(program, folder), one_device=True)
    return tuple(np.asarray(one, np.float64) for one in found)


def error(name: str, folder: pathlib.Path, checked=False) -> float:
    """How far what any device holds is from the result on one device, as a part of the largest
    element."""
    worst = 0.0
    found = results(written(name, folder, checked))
    for one, right in zip(found, expected(name.partition(".")[0], folder)):
        for shard in one.addressable_shards:
            held = np.asarray(shard.data, np.float64)
            part = right[shard.index]
            if held.shape != part.shape:
                return math.inf
            apart = np.abs(held - part).max(initial=0.0)
            worst = max(
                worst, np.nan_to_num(apart / (np.abs(right).max(initial=0.0) + 1e-12), nan=math.inf)
            )
    return worst
