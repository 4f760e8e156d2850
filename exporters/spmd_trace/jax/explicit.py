"""Operations on explicit axes: what JAX leaves to the compiler is written out.

There an operation may take an invariant operand beside a sharded one, and sum over a sharded
dimension; the communication behind it, forward or backward, is part of the operation. A trace says
it: the operand is first made replicated (its gradient is summed), the sum is partial and then
redistributed to what JAX types.
"""

from .attributes import attributes
from .document import Value
from .redistribution import entry_axes, redistribute
from .refused import Unrecordable


def joined(recorder, ins: list, outs: list[Value]) -> list:
    """The operands, those that are invariant on an axis where another one varies made
    replicated."""
    values = [item for item in ins if isinstance(item, Value)]
    found = []
    for item in ins:
        if isinstance(item, Value) and item.derived and item.floating:
            axes = [
                axis
                for axis in recorder.region.explicit
                if item.type[axis] == "I" and any(one.type[axis] == "V" for one in values)
            ]
            if axes:
                item = _made_reduced(recorder, item, axes)
        found.append(item)
    return found


def aligned(recorder, eqn, ins: list, outs: list[Value]) -> list:
    """The operands of a pointwise operation, cut as its result is."""
    found = []
    for item, atom in zip(ins, eqn.invars):
        like = isinstance(item, Value) and atom.aval.shape == eqn.outvars[0].aval.shape
        if like and item.spec != outs[0].spec:
            item = _cut_like(recorder, item, outs[0])
        found.append(item)
    return found


def check_cuts(name: str, eqn, ins: list) -> None:
    """Refuses what takes a part of a dimension that is cut, or adds to it: blocks would move."""
    shape = eqn.outvars[0].aval.shape
    for item, atom in zip(ins, eqn.invars):
        if isinstance(item, Value) and len(item.shape) == len(shape):
            for dim, extent in enumerate(atom.aval.shape):
                if entry_axes(item, dim) and extent != shape[dim]:
                    raise Unrecordable(f"`{name}` changes a dimension that is cut: reshard first")


def _cut_like(recorder, value: Value, other: Value) -> Value:
    """The same tensor where another one of its extents is cut; what is pending stays so."""
    kinds = dict(value.type)
    for axis, kind in other.type.items():
        if kind == "V":
            kinds[axis] = "V"
        elif kinds[axis] == "V":
            kinds[axis] = "I"
    made = Value(value.dtype, other.shape, kinds, other.spec, value.derived)
    redistribute(recorder, value, made)
    return made


def _whole(recorder, name: str, eqn) -> None:
    """What is no sum over a dimension has it gathered first."""
    operand, gone = recorder.tensor(eqn.invars[0]), set(eqn.params["axes"])
    axes = [axis for dim in gone for axis in entry_axes(operand, dim)]
    if axes:
        shape = [
            eqn.invars[0].aval.shape[dim] if dim in gone else extent
            for dim, extent in enumerate(operand.shape)
        ]
        entries = [None if dim in gone else one for dim, one in enumerate(operand.spec)]
        kinds = operand.type | {axis: "I" for axis in axes}
        spec = entries if any(entries) else None
        made = Value(operand.dtype, shape, kinds, spec, operand.derived)
        redistribute(recorder, operand, made)
        operand = made
    outs = recorder.results(eqn, operand.derived)
    recorder.emit(name, [operand], outs, attributes(name, eqn.params, [operand], outs))


def _made_reduced(recorder, value: Value, axes: list[str]) -> Value:
    kinds = value.type | {axis: "Reduced" for axis in axes}
    made = Value(value.dtype, value.shape, kinds, value.spec)
    recorder.emit("preduced", [value], [made], {"axis": axes}, expected=False)
    return made


def _summed(recorder, name: str, eqn, partial: list[str], before: Value) -> None:
    """An operation that sums over sharded dimensions, and where its result goes."""
    (out,) = recorder.results(eqn, True)
    ins = [recorder.operand(atom) for atom in eqn.invars]
    attrs = attributes(name, eqn.params, ins, [before])
    ins = joined(recorder, ins, [before])
    if partial:
        attrs["partial"] = partial
    before.dtype = out.dtype
    if (before.type, before.spec) == (out.type, out.spec):
        recorder.emit(name, ins, [out], attrs)
        return
    recorder.emit(name, ins, [before], attrs, expected=False)
    redistribute(recorder, before, out)


def _dot_general(recorder, name: str, eqn) -> None:
    (sum_x, sum_y), (batch_x, batch_y) = eqn.params["dimension_numbers"]
    x, y = recorder.tensor(eqn.invars[0]), recorder.tensor(eqn.invars[1])
    entries = [_entry(x, dim) or _entry(y, other) for dim, other in zip(batch_x, batch_y)]
    common = [*zip(sum_x, sum_y), *zip(batch_x, batch_y)]
    if any(entry_axes(x, dim) != entry_axes(y, other) for dim, other in common):
        raise Unrecordable("a product of operands that differ in how they are cut: reshard one")
    shape = [x.shape[dim] for dim in batch_x]
    for value, gone in ((x, {*sum_x, *batch_x}), (y, {*sum_y, *batch_y})):
        free = [dim for dim in range(len(value.shape)) if dim not in gone]
        entries += [_entry(value, dim) for dim in free]
        shape += [value.shape[dim] for dim in free]
    partial = [axis for dim in sum_x for axis in entry_axes(x, dim)]
    cut = [axis for one in entries for axis in ([one] if isinstance(one, str) else one or ())]
    if len({*cut, *partial}) < len(cut) + len(partial):
        raise Unrecordable("a product whose operands are cut along one axis: reshard one")
    kinds = {axis: _product_kind(axis, x, y, partial) for axis in x.type}
    spec = entries if any(entries) else None
    _summed(recorder, name, eqn, partial, Value(x.dtype, shape, kinds, spec))


def _entry(value, dim: int):
    return value.spec[dim] if value.spec else None


def _product_kind(axis: str, x: Value, y: Value, partial: list[str]) -> str:
    kinds = {x.type[axis], y.type[axis]}
    if axis in partial or "P" in kinds:
        return "P"
    return "V" if "V" in kinds else "Reduced" if kinds == {"Reduced"} else "I"


def _reduce_sum(recorder, name: str, eqn) -> None:
    x, gone = recorder.tensor(eqn.invars[0]), set(eqn.params["axes"])
    partial = [axis for dim in gone for axis in entry_axes(x, dim)]
    left = [dim for dim in range(len(x.shape)) if dim not in gone]
    kinds = x.type | {axis: "P" for axis in partial}
    entries = [_entry(x, dim) for dim in left]
    before = Value(
        x.dtype, [x.shape[dim] for dim in left], kinds, entries if any(entries) else None
    )
    _summed(recorder, name, eqn, partial, before)


def _made_there(recorder, name: str, eqn) -> None:
    """What is the same everywhere is made whole, then cut."""
    (out,) = recorder.results(eqn, True)
    x = recorder.operand(eqn.invars[0]) if eqn.invars else None
    is_value = isinstance(x, Value)
    shape, entries = list(eqn.outvars[0].aval.shape), [None] * len(out.shape)
    for dim, place in enumerate(eqn.params["broadcast_dimensions"] if is_value else ()):
        if x.shape[dim] != 1 or eqn.invars[0].aval.shape[dim] == shape[place]:
            shape[place], entries[place] = x.shape[dim], _entry(x, dim)
    kinds = dict(x.type) if is_value else {axis: "I" for axis in out.type}
    spec = entries if any(entries) else None
    before = Value(out.dtype, shape, kinds, spec, derived=is_value and x.derived)
    out.derived = before.derived
    same = (before.type, before.spec) == (out.type, out.spec)
    made = out if same else before
    if x is not None and not is_value:
        recorder.fill(made, x)
    else:
        ins = [x] if is_value else []
        recorder.emit(name, ins, [made], attributes(name, eqn.params, ins, [made]), expected=same)
    if not same:
        redistribute(recorder, before, out)


def _reshard(recorder, name: str, eqn) -> None:
    operand, (out,) = recorder.tensor(eqn.invars[0]), recorder.results(eqn, True)
    out.derived = operand.derived
    if (operand.type, operand.spec) == (out.type, out.spec):
        recorder.values[eqn.outvars[0]] = operand
        return
    redistribute(recorder, operand, out)


def _reshape(recorder, name: str, eqn) -> None:
    if eqn.invars[0].aval.shape == eqn.outvars[0].aval.shape:
        _reshard(recorder, name, eqn)  # as backward passes write it
    else:
        recorder.ordinary(name, eqn)


RECORDED = {
    "dot_general": _dot_general,
    "reduce_sum": _reduce_sum,
    "reduce_max": _whole,
    "reduce_min": _whole,
    "reduce_prod": _whole,
    "argmax": _whole,
    "argmin": _whole,
    "broadcast_in_dim": _made_there,
    "iota": _made_there,
    "reshape": _reshape,
    "reshard": _reshard,
}
