"""The parameters of a primitive as attributes: plain data, extents of what one rank holds."""

import dataclasses
import enum

import numpy as np

from ..document import number
from .document import Value
from .states import dtype_word

# Where the format means a mesh axis by `axis`, or has another word.
_RENAMED = {"axis": "dim"}
# What says where values are, or how the compiler works, and not what is computed.
_LEFT_OUT = {
    "out_sharding", "sharding", "dst_sharding", "concrete_mesh", "precision", "out_type",
    "preferred_element_type", "out_dtype", "accuracy", "weak_type", "donated_invars", "inline",
    "indices_are_sorted", "unique_indices", "update_jaxpr", "update_consts",
    "dimensions_are_sorted", "algorithm", "mode", "whole",
}  # fmt: skip


def attributes(name: str, params: dict, ins: list, outs: list[Value]) -> dict:
    """The attributes of an ordinary primitive."""
    found = {}
    for key, value in params.items():
        if key in _LEFT_OUT or value is None:
            continue
        plain = _plain(value)
        if plain is not NotImplemented:
            found[_RENAMED.get(key, key)] = plain
    return found | _local_extents(name, params, ins, outs)


def _plain(value):
    """A parameter as plain data; NotImplemented for what is none."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, (bool, int, float, str)):
        return number(value)
    if isinstance(value, np.generic):
        return number(value.item())
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return dtype_word(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        plain = {key: _plain(one) for key, one in fields.items()}
        return {key: one for key, one in plain.items() if one is not NotImplemented}
    if isinstance(value, (tuple, list)):
        items = [_plain(one) for one in value]
        return NotImplemented if NotImplemented in items else items
    return NotImplemented


def _local_extents(name: str, params: dict, ins: list, outs: list[Value]) -> dict:
    """Attributes that state extents of operands or results."""
    if name == "reshape":
        return {"new_sizes": outs[0].shape}
    if name in ("broadcast_in_dim", "iota"):
        return {"shape": outs[0].shape}
    if name == "dynamic_slice":
        return {"slice_sizes": outs[0].shape}
    if name == "slice":
        limits = zip(params["limit_indices"], params["whole"], ins[0].shape)
        return {"limit_indices": [one if stop == whole else stop for stop, whole, one in limits]}
    if name == "gather":
        sizes = zip(params["slice_sizes"], params["whole"], ins[0].shape)
        return {"slice_sizes": [one if size == whole else size for size, whole, one in sizes]}
    if name == "split":
        return {"sizes": [out.shape[params["axis"]] for out in outs]}
    return {}
