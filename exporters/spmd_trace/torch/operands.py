"""Sorts the arguments of an aten call into operands, attributes and what is written.

Tensors, and numbers that stand where a tensor could, are operands in schema order; everything
else is an attribute under the schema's own name. Attributes equal to the default are dropped.
"""

import dataclasses
import sys

import torch

from ..document import number
from .values import DTYPES

_DROPPED = {"device", "layout", "pin_memory", "memory_format", "generator", "non_blocking"}
_OPERAND_NUMBERS = {"other", "exponent", "weight", "self", "scalar"}


@dataclasses.dataclass
class Bound:
    """An op's arguments: tensors still as tensors, in `ins` possibly inside lists."""

    ins: list = dataclasses.field(default_factory=list)
    kw: dict = dataclasses.field(default_factory=dict)
    attrs: dict = dataclasses.field(default_factory=dict)
    written: list[int] = dataclasses.field(default_factory=list)
    name: str | None = None  # of the overload that takes these arguments, if it is another one

    def tensors(self) -> list[torch.Tensor]:
        return [t for t in flatten([*self.ins, *self.kw.values()]) if isinstance(t, torch.Tensor)]


def flatten(items) -> list:
    """The leaves of nested lists, in order."""
    leaves = []
    for item in items:
        leaves += flatten(item) if isinstance(item, (list, tuple)) else [item]
    return leaves


def _attribute(value):
    if isinstance(value, torch.dtype):
        return DTYPES[value]
    if isinstance(value, (list, tuple)):
        return [_attribute(item) for item in value]
    if isinstance(value, (bool, int, float)):
        return number(value)
    return str(value)


def bind(func: torch._ops.OpOverload, args: tuple, kwargs: dict) -> Bound:
    """Binds a call to its schema."""
    bound = Bound()
    for index, argument in enumerate(func._schema.arguments):
        if index < len(args):
            value = args[index]
        elif argument.name in kwargs:
            value = kwargs[argument.name]
        else:
            value = argument.default_value
        _place(bound, argument, value)
    _one_number(func, bound)
    if func is torch.ops.aten.cat.default:
        bound.ins[0] = _with_dimensions(bound.ins[0])
    # Absent optional tensors at the end say nothing.
    while bound.ins and bound.ins[-1] is None:
        bound.ins.pop()
    return bound


def _one_number(func: torch._ops.OpOverload, bound: Bound) -> None:
    """A number for each tensor of a list is one number, where all are the same."""
    numbers = bound.attrs.get("scalars")
    if (
        func._overloadname == "ScalarList"
        and len(bound.ins) == 1
        and len(set(map(str, numbers))) == 1
    ):
        del bound.attrs["scalars"]
        bound.ins.append(numbers[0])
        bound.name = str(func).replace(".ScalarList", ".Scalar")


def _with_dimensions(tensors: list) -> list:
    """What is put together, but for lists of nothing, which torch leaves out whatever the others
    are. What stands for a tensor has no shape to ask for.
    """
    if not all(isinstance(one, torch.Tensor) for one in tensors):
        return tensors
    found = [one for one in tensors if one.dim() != 1 or one.numel()]
    return found if any(one.dim() != 1 for one in found) else tensors


def _place(bound: Bound, argument, value) -> None:
    kind, name = str(argument.type), argument.name
    if "Tensor" in kind:
        if argument.is_out:
            bound.kw[name] = value
            return
        if argument.alias_info is not None and argument.alias_info.is_write:
            bound.written.append(len(bound.ins))
        plain = list(value) if isinstance(value, (list, tuple)) else value
        bound.ins.append(number(plain) if isinstance(plain, float) else plain)
    elif kind == "number" and name in _OPERAND_NUMBERS:
        bound.ins.append(number(value))
    elif name in _DROPPED or value is None or _is_default(value, argument):
        return
    else:
        bound.attrs[name] = _attribute(value)


def _is_default(value, argument) -> bool:
    if argument.name == "end" and value == sys.maxsize:
        return True  # how a slice says "to the end"; a trace holds integers up to 2^53
    if not argument.has_default_value():
        return False
    default = argument.default_value
    if isinstance(value, (list, tuple)) and isinstance(default, (list, tuple)):
        return list(value) == list(default)
    return type(value) is type(default) and value == default
