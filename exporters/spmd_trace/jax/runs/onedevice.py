"""What a function makes on all devices of its mesh, against what one device makes of the same
arguments.
"""

import dataclasses
import functools
import inspect
import json
import os
import pathlib
import pickle
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import core

from ...gradcheck import plain
from ...locations import SITE, is_ours, relative_path
from ..numbers import sizes
from ..unchecked import first_mesh
from ..versions import use_abstract_mesh
from . import doubts
from .arguments import is_array, name_of, of_arrays

MOST_BYTES = 1 << 30  # of arguments and results that are kept of a call
_PART = 5e-3  # of the largest number, by which results may differ
_PART_HALF = 5e-2  # where there are numbers of 16 bits
_ROUNDINGS = 50  # units in the last place of what a change is added to
_NUDGE = 1e-6  # by which arguments are changed, to see how much of a difference that makes
_CHANGE = "change of "  # what stands before the name of an argument that a result replaces
_NO_RATIO = -1.0  # of what is off by no factor that ranks could make
_NAMED = 3  # results of one finding that are named


@dataclasses.dataclass
class Kept:
    """A call on all devices."""

    arguments: list  # arrays of numbers, in the order of the leaves; none where there is no array
    results: list  # of each leaf: its dtype, and (index, numbers) of each device
    paths: list[tuple[str, int | None]]  # of each result: what it is, and the argument it replaces
    draws: list[tuple]  # shapes that are drawn at random on one rank
    by_rank: bool  # whether what is drawn depends on the place of the rank
    sizes: dict[str, int]  # of the mesh


def numbers(array) -> np.ndarray:
    """A copy: what is donated is written over."""
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    return np.array(array)


def _shards(array) -> list:
    if not isinstance(array, jax.Array) or jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return [((), numbers(array))]
    return [(one.index, np.array(one.data)) for one in array.addressable_shards]


def size_of(leaves) -> int:
    return sum(one.nbytes for one in leaves if is_array(one) and hasattr(one, "nbytes"))


def results_of(function, args, kwargs, made) -> tuple[list, list]:
    """The leaves of what a call has made, and of each its name and the argument that it replaces:
    that of a tree of the same form."""
    given = [(path, leaf) for path, leaf in jax.tree.leaves_with_path((args, kwargs))]
    places: dict = {}
    for place, (path, leaf) in enumerate(given):
        if is_array(leaf):
            key = (jax.tree_util.keystr(path[2:]), leaf.shape, str(leaf.dtype))
            places.setdefault(key, []).append(place)
    paths, leaves, taken = [], [], set()
    whole = isinstance(made, tuple) and not hasattr(made, "_fields")
    for path, leaf in jax.tree.leaves_with_path(made):
        leaves.append(leaf)
        rest = jax.tree_util.keystr(path[1:] if whole else path)
        name = f"result{jax.tree_util.keystr(path)}"
        source = None
        if is_array(leaf) and jnp.issubdtype(leaf.dtype, jnp.inexact):
            for place in places.get((rest, leaf.shape, str(leaf.dtype)), []):
                if place not in taken:
                    source = place
                    taken.add(place)
                    name = f"{_CHANGE}{name_of(function, given[place][0])}"
                    break
        paths.append((name, source))
    return leaves, paths


def read(file: pathlib.Path) -> Kept:
    return pickle.loads(file.read_bytes())


def has_no_shard_map(function, args, kwargs) -> bool:
    return first_mesh(_jaxpr(function, args, kwargs).jaxpr) is None


def keep(file: pathlib.Path, function, args, kwargs) -> tuple:
    """Makes a call, and writes what it took and made; its result, and why it was not kept."""
    made, kept = kept_call(function, args, kwargs)
    if isinstance(kept, str):
        return made, kept
    file.with_suffix(".place").write_text(json.dumps(place_of(function)))
    file.write_bytes(pickle.dumps(kept))
    return made, ""


def kept_call(function, args, kwargs) -> tuple:
    """The result of a call on all devices, and what is kept of it, or a word about why nothing
    is."""
    leaves = jax.tree.leaves((args, kwargs))
    if size_of(leaves) > MOST_BYTES:
        return function(*args, **kwargs), "its arguments are too large to be kept"
    arguments = [numbers(one) if is_array(one) else None for one in leaves]
    jaxpr = _jaxpr(function, args, kwargs).jaxpr
    made = function(*args, **kwargs)
    results, paths = results_of(function, args, kwargs, made)
    if size_of(results) > MOST_BYTES:
        return made, "its results are too large to be kept"
    shapes, by_rank = doubts.draws(jaxpr)
    axes = {}
    for eqn, _ in doubts.bodies(jaxpr, "shard_map"):
        axes |= dict(eqn.params["mesh"].shape)
    held = [(str(one.dtype), _shards(one)) if is_array(one) else None for one in results]
    return made, Kept(arguments, held, paths, shapes, by_rank, axes)


def confirmed(function, args, kwargs) -> list[dict]:
    """What differs between a call on all devices and the same function, traced for one."""
    _, kept = kept_call(function, args, kwargs)
    if isinstance(kept, str):
        raise NotComparable(kept)
    first = jax.devices()[0]
    moved = [jax.device_put(one, first) if is_array(one) else one
             for one in jax.tree.leaves((args, kwargs))]  # fmt: skip
    given = jax.tree.unflatten(jax.tree.structure((args, kwargs)), moved)
    mesh = first_mesh(_jaxpr(function, args, kwargs).jaxpr)
    try:
        with sizes.with_sizes(dict.fromkeys(kept.sizes, 1)):
            with use_abstract_mesh(sizes.resized(mesh)):
                closed = _jaxpr(function, *given)
    except Exception as error:  # whatever the program says
        raise NotComparable(f"it cannot be traced with one device: {error}") from error
    program = jax.jit(core.jaxpr_as_fun(closed))

    def on_one(*args, **kwargs):
        return program(*[one for one in jax.tree.leaves((args, kwargs)) if is_array(one)])

    return compared(kept, on_one, *given, closed)[1]


def _jaxpr(function, args, kwargs):
    called, places, leaves = of_arrays(function, args, kwargs)
    return jax.make_jaxpr(called)(*[leaves[place] for place in places])


def substituted(kept: Kept, args, kwargs) -> tuple:
    """The arguments of a call with the numbers of another one; the devices are its own."""
    leaves, tree = jax.tree.flatten((args, kwargs))
    if len(leaves) != len(kept.arguments):
        raise NotComparable("its arguments have another structure with one device")
    filled = []
    alike = _begins_alike(kept, leaves)
    for own, other in zip(leaves, kept.arguments):
        if other is None or not is_array(own):
            filled.append(own)
            continue
        if jnp.issubdtype(own.dtype, jax.dtypes.prng_key):
            filled.append(jax.random.wrap_key_data(other, impl=jax.random.key_impl(own)))
            continue
        other = _unpadded(other, own.shape)
        if alike and (own.dtype.kind in "iu" or other.shape != own.shape):
            other = numbers(own)  # a copy: a call may be given it for good
        if isinstance(own, jax.Array):
            filled.append(jax.device_put(other, own.sharding))
        else:
            filled.append(other.astype(own.dtype))
    return jax.tree.unflatten(tree, filled)


def _begins_alike(kept: Kept, leaves) -> bool:
    """Whether a script begins on one device with the numbers that it has on all: then what it
    counts, such as the rows to which an index points, and what has another shape, such as rows that
    it has sorted by rank, is meant for one device. A state of another shape is another model."""
    states = {source for _, source in kept.paths}
    found = False
    for place, (own, other) in enumerate(zip(leaves, kept.arguments)):
        if other is None or not is_array(own) or not jnp.issubdtype(own.dtype, jnp.inexact):
            continue
        other = _unpadded(other, own.shape)
        if own.shape != other.shape and place not in states:
            continue
        if not np.array_equal(numbers(own), other, equal_nan=True):
            return False
        found = True
    return found


def _padded_dim(shape, padded) -> int | None:
    """The dimension in which a shape was made longer, if it is one alone."""
    if len(shape) != len(padded):
        return None
    apart = [dim for dim, (one, other) in enumerate(zip(shape, padded)) if one != other]
    return apart[0] if len(apart) == 1 and shape[apart[0]] < padded[apart[0]] else None


def _unpadded(array: np.ndarray, shape) -> np.ndarray:
    """Without the zeros that make it as long as the ranks can divide, or as it is."""
    dim = _padded_dim(shape, array.shape)
    if dim is None:
        return array
    kept, rest = np.split(array, [shape[dim]], axis=dim)
    return array if rest.any() else kept


def _padded(array: np.ndarray, shape) -> np.ndarray:
    """With zeros up to a length that the ranks can divide, or as it is."""
    dim = _padded_dim(array.shape, shape)
    if dim is None:
        return array
    more = [(0, shape[dim] - array.shape[dim] if place == dim else 0)
            for place in range(array.ndim)]  # fmt: skip
    return np.pad(array, more)


def _whole_shape(shards) -> tuple[int, ...]:
    """Of the array whose blocks devices hold."""
    ends = [[cut.stop or size for cut, size in zip(index, block.shape)] or block.shape
            for index, block in shards]  # fmt: skip
    return tuple(max(of_dim) for of_dim in zip(*ends))


class NotComparable(Exception):
    """Why a call on one device says nothing of one on all."""


@dataclasses.dataclass
class Difference:
    """Of one result: by how much it differs, and its ratio where there is one."""

    worst: float  # of the largest number
    ratio: float | None
    devices: int  # on which it differs
    of: int


def difference(kept, want: np.ndarray, base: np.ndarray | None, part: float) -> Difference | None:
    """How what devices hold differs from a whole array; base: what both are a change of."""
    dtype, shards = kept
    exact = want.dtype.kind in "biu"
    want = want.astype(np.complex128 if want.dtype.kind == "c" else np.float64)
    inside = _padded(np.ones(want.shape, bool), _whole_shape(shards))
    want = _padded(want, inside.shape)
    base = np.zeros_like(want) if base is None else base.astype(want.dtype)
    change = want - base
    most = np.abs(change[np.isfinite(change)]).max(initial=0.0)
    limit = 0.0 if exact else part * most + 1e-30
    if not exact:
        limit += _ROUNDINGS * float(jnp.finfo(dtype).eps) * np.abs(base).max(initial=0.0)
    worst, off, ours, theirs = 0.0, 0, [], []
    for index, held in shards:
        held, right = held.astype(want.dtype), want[index]
        if held.shape != right.shape or held[~inside[index]].any():
            raise NotComparable("its results have other shapes with one device")
        apart = np.abs(np.where((held == right) | (np.isnan(held) & np.isnan(right)), 0,
                                held - right))  # fmt: skip
        apart = np.nan_to_num(apart, nan=np.inf).max(initial=0.0)
        worst, off = max(worst, apart), off + (apart > limit)
        ours.append((held - base[index]).ravel())
        theirs.append(change[index].ravel())
    if not off:
        return None
    ratio = _ratio(np.concatenate(ours), np.concatenate(theirs), limit)
    return Difference(worst / (most + 1e-30), ratio, off, len(shards))


def _ratio(ours, theirs, limit: float) -> float | None:
    below = np.vdot(theirs, theirs).real
    if not below or not np.isfinite(ours).all():
        return None
    ratio = np.vdot(theirs, ours).real / below
    fits = np.abs(ours - ratio * theirs).max() <= max(abs(ratio), 1) * limit
    ratio = plain(ratio)
    times = 1 / ratio if 0 < abs(ratio) < 1 else ratio
    # A number is off by some factor always; only a number of ranks says something.
    return ratio if fits and ratio != 1 and times == round(times) else None


def differences(kept: Kept, made: list) -> dict[int, Difference]:
    """By result. One that has another shape on one device, such as a number of each rank, says
    nothing of the others; raises if all have."""
    halves = any(np.dtype(one[0]).itemsize == 2 and jnp.issubdtype(one[0], jnp.inexact)
                 for one in kept.results if one and not one[0].startswith("key<"))  # fmt: skip
    found, alike, other = {}, 0, None
    for place, (held, want) in enumerate(zip(kept.results, made)):
        if held is None or not is_array(want) or held[0].startswith("key<"):
            continue
        source = kept.paths[place][1]
        base = None if source is None else kept.arguments[source]
        try:
            one = difference(held, numbers(want), base, _PART_HALF if halves else _PART)
        except NotComparable as error:
            other = error
            continue
        alike += 1
        if one is not None:
            found[place] = one
    if other and not alike:
        raise other
    return found


def compared(kept: Kept, function, args, kwargs, closed=None) -> tuple:
    """What a call on one device makes, and what differs from the one on all (`unlike`); an error
    that says why that is no comparison. closed: its jaxpr, if it is known."""
    given = substituted(kept, args, kwargs)
    closed = _jaxpr(function, *given) if closed is None else closed
    made = function(*given[0], **given[1])
    leaves = jax.tree.leaves(made)
    if len(leaves) != len(kept.results):
        raise NotComparable("its results have another structure with one device")
    found = differences(kept, leaves)
    if found:
        given = substituted(kept, args, kwargs)  # what is donated is gone
        _doubt(kept, closed, args, kwargs, given)
        found = _beyond_roundings(kept, function, given, leaves, found)
        if (
            found
            and doubts.counts_rows(closed.jaxpr)
            and _block_by_block(kept, function, args, kwargs, found)
        ):
            found = {}
    return made, statements(kept, found)


def _doubt(kept: Kept, closed, args, kwargs, given) -> None:
    """Raises where the program of one device may mean something else."""
    own = [np.shape(one) for one in jax.tree.leaves((args, kwargs))]
    if own != [np.shape(one) for one in jax.tree.leaves(given)]:
        raise NotComparable("its arguments have other shapes with one device")
    shapes, by_rank = doubts.draws(closed.jaxpr)
    if kept.by_rank or shapes != kept.draws:
        raise NotComparable("each rank draws random numbers of its own")
    if doubts.unused_blocks(closed.jaxpr):
        raise NotComparable("one device has several of what each rank has one of")
    sizes = doubts.products(kept.sizes)
    literals = {
        float(np.real(one.val))
        for one in doubts.factors(closed.jaxpr)
        if doubts.is_size(one, sizes)
    }
    for chosen in [literals, *([one] for one in literals)] if len(literals) > 1 else [literals]:
        if not chosen:
            continue
        other = doubts.with_ones(closed, lambda atom: doubts.is_size(atom, chosen))
        arrays = [one for one in jax.tree.leaves(given) if is_array(one)]
        if not differences(kept, jax.jit(core.jaxpr_as_fun(other))(*arrays)):
            words = ", ".join(f"{one:g}" for one in chosen)
            raise NotComparable(f"{words} in it may be a number of ranks")


def _block_by_block(kept: Kept, function, args, kwargs, places) -> bool:
    """Whether one device makes these results as all do, if it gets the rows of one rank at a time:
    a capacity leaves out other rows of a block than of the whole. Rows are those of the results in
    question, and of arguments that are as long."""
    shards = [one for place in places for one in kept.results[place][1]]
    if not all(index for index, _ in shards):
        return False
    ends = [index[0].stop for index, _ in shards]
    if None in ends:  # not cut
        return False
    blocks = {(index[0].start or 0, index[0].stop) for index, _ in shards}
    for block in blocks:
        part = _of_rows(kept, places, max(ends), slice(*block))
        given = substituted(part, args, kwargs)
        try:
            made = function(*given[0], **given[1])
        except Exception:  # these are no rows of a batch, such as experts
            return False
        if differences(part, jax.tree.leaves(made)):
            return False
    return len(blocks) > 1


def _of_rows(kept: Kept, places, length: int, rows: slice) -> Kept:
    """These rows of tensors that are so long, and of these results."""
    arguments = [one[rows] if np.shape(one)[:1] == (length,) else one for one in kept.arguments]
    results: list = [None] * len(kept.results)
    for place in places:
        dtype, shards = kept.results[place]
        results[place] = (
            dtype,
            [
                ((slice(None), *index[1:]), block)
                for index, block in shards
                if (index[0].start or 0) == rows.start
            ],
        )
    return dataclasses.replace(kept, arguments=arguments, results=results)


def _beyond_roundings(kept: Kept, function, given, made, found: dict) -> dict:
    """Without what arguments that are a little different change as much."""
    state = np.random.default_rng(0)

    def nudged(one):
        if not is_array(one) or not jnp.issubdtype(one.dtype, jnp.floating):
            return one
        factor = 1 + _NUDGE * state.standard_normal(one.shape)
        moved = (numbers(one) * factor).astype(one.dtype)
        return jax.device_put(moved, one.sharding) if isinstance(one, jax.Array) else moved

    args, kwargs = jax.tree.map(nudged, given)
    other = jax.tree.leaves(function(*args, **kwargs))
    left = {}
    for place, one in found.items():
        before, after = (numbers(leaves[place]).astype(np.float64) for leaves in (made, other))
        source = kept.paths[place][1]
        base = 0 if source is None else kept.arguments[source].astype(np.float64)
        moved = np.nan_to_num(np.abs(after - before)).max(initial=0.0)
        if moved * 10 <= one.worst * np.abs(before - base).max(initial=0.0) + 1e-30:
            left[place] = one
    return left


def statements(kept: Kept, found: dict[int, Difference]) -> list[dict]:
    """What a trace says of them (`unlike`): results that are off by one factor stand together."""
    by_ratio: dict = {}
    for place, one in found.items():
        ratio = _NO_RATIO if one.ratio is None else one.ratio
        by_ratio.setdefault(ratio, []).append((kept.paths[place][0], one))
    rows = []
    for ratio, group in by_ratio.items():
        names = sorted([name for name, _ in group], key=lambda name: name.startswith(_CHANGE))
        named = names[:_NAMED]
        words = ", ".join(
            name.removeprefix(_CHANGE) if place and named[place - 1].startswith(_CHANGE) else name
            for place, name in enumerate(named)
        )
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        if all(one.devices < one.of for _, one in group):
            more += f" on {max(one.devices for _, one in group)} of {group[0][1].of} devices"
        rows.append({"value": words + more, "ratio": ratio})
    return rows


def place_of(function) -> dict | None:
    """Where a function begins; of one that a library makes, where it is called."""
    with_code = inspect.unwrap(function)
    while isinstance(with_code, functools.partial):
        with_code = with_code.func
    code = getattr(with_code, "__code__", None)
    file = os.path.abspath(code.co_filename) if code is not None else ""
    line, name = (code.co_firstlineno, code.co_name) if code is not None else (0, "")
    if not file or is_ours(file) or file.startswith(SITE):
        frame = sys._getframe()
        while frame is not None and (
            is_ours(os.path.abspath(frame.f_code.co_filename))
            or frame.f_code.co_filename.startswith((*SITE, "<"))
        ):
            frame = frame.f_back
        if frame is None:
            return None
        file, line = os.path.abspath(frame.f_code.co_filename), frame.f_lineno
        name = frame.f_code.co_name
    return {"file": relative_path(file), "path": file, "line": line, "func": name,
            "col": None, "end": None}  # fmt: skip
