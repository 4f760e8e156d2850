"""Communication and casts over mesh axes, with the source and the target that JAX means by each.

A tiled collective concatenates or cuts a dimension, `S(dim)`; one that is not adds or removes it,
`V`.
"""

import dataclasses
import math

from .document import Value
from .refused import Unrecordable


def _axes(eqn) -> list[str]:
    names = eqn.params.get("axes", eqn.params.get("axis_name"))
    names = names if isinstance(names, (tuple, list)) else (names,)
    if any(not isinstance(name, str) for name in names):
        raise Unrecordable(f"`{eqn.primitive.name}` over positions and mesh axes at once")
    if eqn.params.get("axis_index_groups") is not None:
        raise Unrecordable(f"`{eqn.primitive.name}` within groups of an axis")
    return list(names)


def _between(recorder, aval, shape: list[int], axes: list[str], kind: str) -> Value:
    """A value on the way: of another kind on some axes than what JAX types."""
    value = recorder.region.value(aval)
    value.shape, value.type = shape, value.type | {axis: kind for axis in axes}
    return value


def _cast(recorder, name: str, eqn) -> None:
    named = _axes(eqn)  # JAX takes some of them out of sets
    axes = [axis for axis in recorder.region.sizes if axis in named]
    operand = recorder.tensor(eqn.invars[0])
    recorder.emit(name, [operand], recorder.results(eqn, operand.derived), {"axis": axes})


def _reduction(recorder, name: str, eqn) -> None:
    """Sums and extremes: one value on all ranks, used as one."""
    attrs: dict = {"axis": _axes(eqn)}
    if name in ("pmax", "pmin"):
        attrs |= {"src": "V", "dst": "I"}
    recorder.emit(name, [recorder.tensor(eqn.invars[0])], recorder.results(eqn, True), attrs)


_GATHERED = {"all_gather": "R", "all_gather_reduced": "Reduced", "all_gather_invariant": "I"}


def _all_gather(recorder, name: str, eqn) -> None:
    axes, dim = _axes(eqn), eqn.params["all_gather_dimension"]
    operand, (out,) = recorder.tensor(eqn.invars[0]), recorder.results(eqn, True)
    src = f"S({dim})" if eqn.params["tiled"] else "V"
    attrs = {"axis": axes, "src": src, "dst": _GATHERED[name], "dim": dim}
    if name != "all_gather":
        recorder.emit(name, [operand], [out], attrs)
        return
    # What each rank does with the whole is its own: the gradient is summed and cut again.
    whole = _between(recorder, eqn.outvars[0].aval, out.shape, axes, "R")
    recorder.emit(name, [operand], [whole], attrs, expected=False)
    recorder.emit("reduced_vary_cast", [whole], [out], {"axis": axes})


def _reduce_scatter(recorder, name: str, eqn) -> None:
    axes, dim = _axes(eqn), eqn.params["scatter_dimension"]
    operand, outs = recorder.tensor(eqn.invars[0]), recorder.results(eqn, True)
    if name == "reduce_scatter":  # of what varies: addends from here on
        addends = _between(recorder, eqn.invars[0].aval, operand.shape, axes, "P")
        recorder.emit("vary_unreduced_cast", [operand], [addends], {"axis": axes}, expected=False)
        operand = addends
    dst = f"S({dim})" if eqn.params["tiled"] else "V"
    attrs = {"axis": axes, "src": "P", "dst": dst, "dim": dim}
    recorder.emit("unreduced_reduce_scatter", [operand], outs, attrs)


def _all_to_all(recorder, name: str, eqn) -> None:
    # The primitive cuts and concatenates; what is not tiled has dimensions of one around it.
    split, concat = eqn.params["split_axis"], eqn.params["concat_axis"]
    attrs = {"axis": _axes(eqn), "src": f"S({concat})", "dst": f"S({split})"}
    recorder.emit(name, [recorder.tensor(eqn.invars[0])], recorder.results(eqn, True), attrs)


def _ppermute(recorder, name: str, eqn) -> None:
    attrs = {"axis": _axes(eqn), "src": "V", "dst": "V"}
    attrs["perm"] = [list(pair) for pair in eqn.params["perm"]]
    ranks = math.prod(recorder.region.sizes[axis] for axis in attrs["axis"])
    if any(rank >= ranks for pair in attrs["perm"] for rank in pair):
        raise Unrecordable(f"`ppermute` to or from a rank that is not there: {ranks} are")
    recorder.emit(name, [recorder.tensor(eqn.invars[0])], recorder.results(eqn, True), attrs)


def _axis_index(recorder, name: str, eqn) -> None:
    outs = recorder.results(eqn, False)
    recorder.emit(name, [], outs, {"axis": _axes(eqn)})
    if recorder.program.parts:
        recorder.program.parts.index(outs[0], _axes(eqn))


def _erased(recorder, name: str, eqn) -> None:
    """What JAX does not say the state of: sums and extremes, of what and for whom is for the
    checker."""
    word = {"psum_invariant": "psum", "unreduced_psum": "psum"}.get(name, name)
    for atom, var in zip(eqn.invars, eqn.outvars):
        operand, out = recorder.tensor(atom), recorder.region.value(var.aval)
        if word in ("pmax", "pmin"):  # JAX has no gradient of them, so none is taken
            operand = dataclasses.replace(given := operand, derived=False)
            recorder.emit("stop_gradient", [given], [operand])
        recorder.values[var] = out
        recorder.emit(word, [operand], [out], {"axis": _axes(eqn), "dst": "R"})


def _gathered(recorder, name: str, eqn) -> None:
    dim = eqn.params["all_gather_dimension"]
    src = f"S({dim})" if eqn.params["tiled"] else "V"
    attrs = {"axis": _axes(eqn), "src": src, "dst": "R", "dim": dim}
    outs = recorder.results(eqn, True)
    recorder.emit("all_gather", [recorder.tensor(eqn.invars[0])], outs, attrs)


def _scattered(recorder, name: str, eqn) -> None:
    dim = eqn.params["scatter_dimension"]
    dst = f"S({dim})" if eqn.params["tiled"] else "V"
    attrs = {"axis": _axes(eqn), "dst": dst, "dim": dim}
    outs = recorder.results(eqn, True)
    recorder.emit("reduce_scatter", [recorder.tensor(eqn.invars[0])], outs, attrs)


def _kept(recorder, name: str, eqn) -> None:
    """A cast of states that nobody has. A number stays one, of whatever extents."""
    (atom,), (var,) = eqn.invars, eqn.outvars
    item = recorder.operand(atom)
    recorder.values[var] = item if isinstance(item, Value) else recorder.written(item, var.aval)


def _refused(recorder, name: str, eqn) -> None:
    raise Unrecordable(
        f"`{name}`"
        + (": trace with check_vma=True, else JAX infers no states" if name == "psum" else "")
    )


RECORDED = {
    "pvary": _cast,
    "preduced": _cast,
    "vary_unreduced_cast": _cast,
    "reduced_vary_cast": _cast,
    "psum_invariant": _reduction,
    "unreduced_psum": _reduction,
    "pmax": _reduction,
    "pmin": _reduction,
    "all_gather": _all_gather,
    "all_gather_reduced": _all_gather,
    "all_gather_invariant": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "unreduced_reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "ppermute": _ppermute,
    "axis_index": _axis_index,
    "psum": _refused,
    "ragged_all_to_all": _refused,
    "pbroadcast": _refused,
    "psend": _refused,
    "precv": _refused,
}

# Where JAX infers no states.
UNTYPED = {
    **dict.fromkeys(("psum", "psum_invariant", "unreduced_psum", "pmax", "pmin"), _erased),
    **dict.fromkeys(("all_gather", "all_gather_reduced", "all_gather_invariant"), _gathered),
    **dict.fromkeys(("reduce_scatter", "unreduced_reduce_scatter"), _scattered),
    **dict.fromkeys(("pvary", "preduced", "vary_unreduced_cast", "reduced_vary_cast"), _kept),
}
