"""The programs of examples/jax/unchecked: loaded, with a mistake or without, put on a mesh,
recorded and run."""

import functools
import math
import pathlib
import tomllib

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType

from spmd_trace.jax import dumps, record

FOLDER = pathlib.Path(__file__).parents[3] / "examples" / "jax" / "unchecked"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
MISTAKES = {
    f"{program}.{mistake}": entry
    for program, entries in tomllib.loads((FOLDER / "mistakes.toml").read_text()).items()
    for mistake, entry in entries.items()
}


def text(name: str) -> str:
    """Of a program, or of a program and a mistake: `data_parallel.forgotten`."""
    source = (FOLDER / f"{name.partition('.')[0]}.py").read_text()
    if name not in MISTAKES:
        return source
    mistake = MISTAKES[name]
    assert source.count(mistake["was"]) == 1, f"{name}: what it replaces stands there once"
    return source.replace(mistake["was"], mistake["now"])


def loaded(name: str, folder: pathlib.Path) -> dict:
    """The module, written below a folder so that its lines have a place."""
    path = folder / f"{name}.py"
    path.write_text(text(name))
    module = {"__name__": name}
    exec(compile(path.read_text(), str(path), "exec"), module)
    return module


def recorded(name: str, folder: pathlib.Path) -> str:
    module = loaded(name, folder)
    axes = module["AXES"]
    mesh = AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))
    function, arguments = module["program"](mesh)
    return dumps(record(function, *arguments, mesh=mesh))


def results(name: str, folder: pathlib.Path, one_device: bool) -> list:
    module = loaded(name, folder)
    axes = module["AXES"]
    sizes = [1] * len(axes) if one_device else list(axes.values())
    mesh = jax.make_mesh(tuple(sizes), tuple(axes), axis_types=(AxisType.Auto,) * len(axes),
                         devices=jax.devices()[: math.prod(sizes)])  # fmt: skip
    function, arguments = module["program"](mesh)
    return jax.tree.leaves(function(*arguments))


@functools.cache
def expected(program: str, folder: pathlib.Path) -> tuple:
    """What the program gives on one device."""
    return tuple(np.asarray(one, np.float64) for one in results(program, folder, True))


def error(name: str, folder: pathlib.Path) -> float:
    """How far what any device holds is from the result of one device, as a part of the largest
    element."""
    worst = 0.0
    for found, right in zip(results(name, folder, False), expected(name.partition(".")[0], folder)):
        if found.shape != right.shape:
            return math.inf
        for shard in found.addressable_shards:
            apart = np.abs(np.asarray(shard.data, np.float64) - right[shard.index]).max()
            worst = max(worst, np.nan_to_num(apart / (np.abs(right).max() + 1e-12), nan=math.inf))
    return worst
