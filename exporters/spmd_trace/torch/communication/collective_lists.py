"""Collectives over lists of tensors, as collectives of one tensor and what lays it out.

A list with one tensor for each rank is their concatenation, which the collective gives or takes.
Gathers to one rank and scatters from one rank are the collectives of all ranks that give it the
same.
"""

import torch

_aten = torch.ops.aten


def _rows(recorder, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as rows; a number is one row."""
    return tensor if tensor.dim() else recorder.dispatch(_aten.view.default, (tensor, [1]), {})


def _plain_rows(tensor: torch.Tensor) -> torch.Tensor:
    """The same, for what is not recorded."""
    return tensor if tensor.dim() else tensor.view(1)


def _joined(recorder, tensors: list[torch.Tensor]) -> torch.Tensor:
    rows = [_rows(recorder, tensor) for tensor in tensors]
    return recorder.dispatch(_aten.cat.default, (rows,), {})


def _hidden_join(recorder, tensors: list[torch.Tensor]) -> torch.Tensor:
    """What a collective has left in a list, as the one tensor that it is recorded to give."""
    with recorder.hidden():
        return torch.cat([_plain_rows(tensor) for tensor in tensors])


def _counts(tensors: list[torch.Tensor]) -> list[int]:
    return [tensor.shape[0] if tensor.dim() else 1 for tensor in tensors]


def _hand_out(recorder, whole: torch.Tensor, targets: list[torch.Tensor]) -> None:
    """Writes the rows of a tensor to those of a list."""
    pieces = recorder.dispatch(_aten.split_with_sizes.default, (whole, _counts(targets)), {})
    for target, piece in zip(targets, pieces):
        write(recorder, target, piece)


def write(recorder, target: torch.Tensor, source: torch.Tensor) -> None:
    """Writes `source` to a buffer that holds as much."""
    if source.shape != target.shape:
        source = recorder.dispatch(_aten.reshape.default, (source, list(target.shape)), {})
    recorder.dispatch(_aten.copy_.default, (target, source), {})


def _uneven(counts: list[int]) -> dict:
    return {"splits": counts} if len(set(counts)) > 1 else {}


def _gathered(recorder, source, targets: list[torch.Tensor], attrs: dict) -> torch.Tensor:
    whole = _hidden_join(recorder, targets)
    words = attrs | {"dim": 0} | _uneven(_counts(targets)) | recorder.words_for("all_gather")
    recorder.emit("all_gather", [_rows(recorder, source)], [whole], words)
    return whole


def all_gather(recorder, given, attrs) -> None:
    for source, targets in zip(given["input_tensors"], given["output_tensors"]):
        _hand_out(recorder, _gathered(recorder, source, targets, attrs), targets)


def all_gather_coalesced(recorder, given, attrs) -> None:
    """One list of all tensors for each rank."""
    for place, source in enumerate(given["input_list"]):
        targets = [of_rank[place] for of_rank in given["output_lists"]]
        _hand_out(recorder, _gathered(recorder, source, targets, attrs), targets)


def reduce_scatter(recorder, given, attrs) -> None:
    for sources, target in zip(given["input_tensors"], given["output_tensors"]):
        words = attrs | {"dim": 0} | _uneven(_counts(sources))
        words |= recorder.words_for("reduce_scatter")
        with recorder.hidden():
            piece = _plain_rows(target).clone()
        recorder.emit("reduce_scatter", [_joined(recorder, sources)], [piece], words)
        write(recorder, target, piece)


def all_to_all(recorder, given, attrs) -> None:
    sources, targets = given["input_tensors"], given["output_tensors"]
    for word, counts in (("in_splits", _counts(sources)), ("out_splits", _counts(targets))):
        if len({*_counts(sources), *_counts(targets)}) > 1:
            attrs[word] = counts
    attrs |= {"split_dim": 0, "concat_dim": 0} | recorder.words_for("all_to_all")
    whole = _hidden_join(recorder, targets)
    recorder.emit("all_to_all", [_joined(recorder, sources)], [whole], attrs)
    _hand_out(recorder, whole, targets)


def _at_root(recorder, whole: torch.Tensor, attrs: dict) -> torch.Tensor:
    """What one rank alone has: the others have something else there."""
    words = {"axis": _axes(recorder, attrs), "src": "R", "dst": "V", "expert": True}
    with recorder.hidden():
        own = whole.view_as(whole)
    recorder.emit("reinterpret", [whole], [own], words)
    return own


def _axes(recorder, attrs: dict):
    axes = recorder.program.groups[attrs["group"]].get("axes")
    if axes is None:
        raise NotImplementedError("a gather or a scatter among ranks that are no axis of the mesh")
    return axes if len(axes) > 1 else axes[0]


def gather(recorder, given, attrs) -> None:
    """All ranks send theirs to one; the others get nothing, and use nothing."""
    for place, source in enumerate(given["input_tensors"]):
        lists = given["output_tensors"]
        targets = lists[place] if lists and lists[place] else None
        if targets is not None:
            whole = _gathered(recorder, source, targets, attrs)
            _hand_out(recorder, _at_root(recorder, whole, attrs), targets)
            continue
        with recorder.hidden():
            unused = torch.cat([source.reshape(-1, *source.shape[1:])] * given["size"])
        words = attrs | {"dim": 0} | recorder.words_for("all_gather")
        recorder.emit("all_gather", [_rows(recorder, source)], [unused], words)


def gather_single(recorder, given, attrs) -> None:
    source, target = given["input_tensor"], given["output_tensor"]
    if not target.numel():
        return gather(recorder, {"input_tensors": [source], "output_tensors": [], **given}, attrs)
    with recorder.hidden():
        whole = target.clone()
    recorder.emit("all_gather", [_rows(recorder, source)], [whole], attrs | {"dim": 0})
    return write(recorder, target, _at_root(recorder, whole, attrs))


def scatter(recorder, given, attrs) -> None:
    """One rank has a list, of which each rank gets its own: what is sent to all, cut."""
    lists = given["input_tensors"]
    axis = _axes(recorder, attrs)
    for place, target in enumerate(given["output_tensors"]):
        if lists and lists[place]:
            whole = _joined(recorder, lists[place])
        else:
            with recorder.hidden():
                whole = torch.cat([_plain_rows(target)] * given["size"])
            recorder.declare_scratch(whole)
        words = {"root": given["root_rank"], "src": "V", "dst": "R"}
        recorder.emit("broadcast_", [whole], [whole], attrs | words, mut=[0])
        with recorder.hidden():
            piece = _plain_rows(target).clone()
        cut = {"axis": axis, "src": "R", "dst": "S(0)"}
        recorder.emit("convert", [whole], [piece], cut)
        write(recorder, target, piece)


HANDLERS = {
    "allgather_": all_gather,
    "allgather_coalesced_": all_gather_coalesced,
    "reduce_scatter_": reduce_scatter,
    "alltoall_": all_to_all,
    "gather_": gather,
    "gather_into_tensor_": gather_single,
    "scatter_": scatter,
}
