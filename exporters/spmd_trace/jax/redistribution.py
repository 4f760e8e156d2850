"""From one sharding to another, one axis at a time: an axis leaves a dimension that it cuts
innermost first, and comes to one outermost first."""

from .document import Value


def entry_axes(value: Value, dim: int) -> list[str]:
    """The axes that cut a dimension, outermost first."""
    entry = value.spec[dim] if value.spec else None
    return [] if entry is None else [entry] if isinstance(entry, str) else list(entry)


def cut_dim(value: Value, axis: str) -> int | None:
    """The dimension that an axis cuts."""
    dims = range(len(value.shape))
    return next((dim for dim in dims if axis in entry_axes(value, dim)), None)


def redistribute(recorder, value: Value, out: Value) -> None:
    """Emits what leads from one value to another one of the same meaning."""
    steps = _steps(value, out)
    for place, (axis, to, dim) in enumerate(steps):
        src = _word(value, axis)
        after = (
            out if place + 1 == len(steps) else _after(value, axis, to, dim, recorder.region.sizes)
        )
        dst = to if dim is None else f"S({dim})"
        attrs = {"axis": axis, "src": src, "dst": dst}
        expected = place + 1 == len(steps)
        recorder.emit("redistribute", [value], [after], attrs, expected=expected)
        value = after


def _word(value: Value, axis: str) -> str:
    dim = cut_dim(value, axis)
    return value.type[axis] if dim is None else f"S({dim})"


def _steps(value: Value, out: Value) -> list[tuple[str, str, int | None]]:
    """Axes with the kind, and for V the dimension, that they go to."""
    positions = {axis: _position(value, axis) for axis in value.type}
    targets = {axis: _position(out, axis) for axis in out.type}
    moved = {  # a dictionary: in the order of the mesh
        axis: None
        for axis in targets
        if (positions[axis], value.type[axis]) != (targets[axis], out.type[axis])
    }
    # What stays on a dimension keeps its place in the order only if all that is outside of it
    # stays.
    for axis in sorted(positions, key=lambda one: positions[one][1]):
        dim = positions[axis][0]
        if dim is not None and any(
            one in moved for one in entry_axes(value, dim)[: positions[axis][1]]
        ):
            moved[axis] = None
    leaving = [axis for axis in moved if positions[axis][0] is not None]
    steps, coming = [], [axis for axis in moved if positions[axis][0] is None]
    for axis in sorted(leaving, key=lambda one: -positions[one][1]):
        dim = targets[axis][0]
        alone = dim is not None and entry_axes(out, dim) == [axis] and not entry_axes(value, dim)
        if dim is None or (alone and entry_axes(value, positions[axis][0]) == [axis]):
            steps.append((axis, out.type[axis], dim))
        else:
            steps.append((axis, "I", None))
            coming.append(axis)
    for axis in sorted(coming, key=lambda one: targets[one][1]):
        steps.append((axis, out.type[axis], targets[axis][0]))
    return steps


def _position(value: Value, axis: str) -> tuple[int | None, int]:
    """The dimension that an axis cuts, and its place among the axes there, from the outermost."""
    dim = cut_dim(value, axis)
    return dim, 0 if dim is None else entry_axes(value, dim).index(axis)


def _after(value: Value, axis: str, to: str, dim: int | None, sizes: dict[str, int]) -> Value:
    shape, entries = list(value.shape), [entry_axes(value, one) for one in range(len(value.shape))]
    for place, axes in enumerate(entries):
        if axis in axes:
            axes.remove(axis)
            shape[place] *= sizes[axis]
    if dim is not None:
        entries[dim].append(axis)
        shape[dim] //= sizes[axis]
    spec = [None if not one else one[0] if len(one) == 1 else one for one in entries]
    kinds = value.type | {axis: to}
    return Value(value.dtype, shape, kinds, spec if any(spec) else None, value.derived)
