"""What operations make of shapes: computed by torch's own FakeTensorMode once, and then remembered.

A step of a large model calls the same operations on the same shapes in each of its layers.
"""

import dataclasses

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_leaves

from ..hostnumbers import Missing

_PLAIN = (
    int,
    float,
    bool,
    str,
    type(None),
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)
_CPU = torch.device("cpu")
_NEVER = {torch.Tag.inplace_view, torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}


@dataclasses.dataclass
class Call:
    """An operation with its arguments, as far as shapes tell them apart."""

    func: torch._ops.OpOverload
    args: tuple
    kwargs: dict

    def __post_init__(self):
        self.tensors: list[torch.Tensor] = []
        self.generator: torch.Generator | None = None
        self._is_plain = not _NEVER.intersection(self.func.tags)
        words = tuple((name, self._describe(one)) for name, one in self.kwargs.items())
        self.key = (self.func, self._describe(self.args), words)

    @property
    def known_by_key(self) -> bool:
        """Whether the key says all."""
        return self._is_plain

    @property
    def makes_new(self) -> bool:
        """Whether the results share no memory with the arguments."""
        return all(one.alias_info is None for one in self.func._schema.arguments)

    def _describe(self, item):
        kind = type(item)
        if kind is FakeTensor or isinstance(item, torch.Tensor):
            self.tensors.append(item)
            self._is_plain = (
                self._is_plain and not item.is_complex() and item.layout is torch.strided
            )
            return layout(item)
        if kind in (list, tuple, torch.Size):
            return tuple([self._describe(one) for one in item])
        if kind is torch.Generator:
            self.generator = item
            return "generator"
        self._is_plain = self._is_plain and kind in _PLAIN
        return kind, repr(item) if kind is float else item

    @property
    def written(self) -> list[tuple[torch.Tensor, bool]]:
        """The tensors that the operation writes, and whether it reads them."""
        found = []
        for place, argument in enumerate(self.func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                given = (
                    self.args[place] if place < len(self.args) else self.kwargs.get(argument.name)
                )
                reads = not argument.is_out and argument.name != "out"
                found += [(one, reads) for one in tensors_of(given)]
        return found


def layout(tensor: torch.Tensor) -> tuple:
    """Where a tensor lies in its storage. The `shape` of a lazy parameter raises."""
    return tensor.storage_offset(), tuple(tensor.size()), tensor.stride(), tensor.dtype


def tensors_of(item) -> list[torch.Tensor]:
    if isinstance(item, torch.Tensor):
        return [item]
    if not isinstance(item, (list, tuple, dict)):
        return []
    return [one for one in tree_leaves(item) if isinstance(one, torch.Tensor)]


class Functions:
    """Results of operations on tensors without values."""

    def __init__(self) -> None:
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        # By call: for each result which operand it is or shares memory with, and where it lies.
        self._known: dict[tuple, tuple] = {}

    def result(self, call: Call):
        """What an operation gives; raises `Missing` where that depends on values."""
        if (known := self._known.get(call.key)) is not None:
            return self._again(known, call.tensors)
        try:
            result = self._computed(call)
        except (
            fake_tensor.DataDependentOutputException,
            fake_tensor.DynamicOutputShapeException,
        ) as error:
            name = call.func._schema.name.replace("::", ".")
            raise Missing(f"`{name}`") from error
        if call.known_by_key and (recipe := _recipe(result, call.tensors)) is not None:
            self._known[call.key] = recipe
        return result

    def _computed(self, call: Call):
        stand_ins: dict[int, FakeTensor] = {}

        def given(item):
            if isinstance(item, (list, tuple)):
                return type(item)(map(given, item)) if type(item) in (list, tuple) else item
            if not isinstance(item, torch.Tensor) or isinstance(item, FakeTensor):
                return item
            return stand_ins.setdefault(id(item), self._stand_in(item))

        args = tuple(map(given, call.args))
        kwargs = {name: given(one) for name, one in call.kwargs.items()}
        result = self.mode.__torch_dispatch__(call.func, (FakeTensor,), args, kwargs)
        if not stand_ins:
            return result
        by_stand_in = {id(stand_ins[id(one)]): one for one in call.tensors if id(one) in stand_ins}

        def back(item):
            if isinstance(item, (list, tuple)):
                return [*map(back, item)] if isinstance(item, list) else tuple(map(back, item))
            return by_stand_in.get(id(item), item)

        return back(result)

    def _stand_in(self, tensor: torch.Tensor) -> FakeTensor:
        """A tensor with the same shape and no values."""
        offset, shape, strides, dtype = layout(tensor)
        empty = torch.empty_strided(shape, strides, dtype=dtype, device="meta")
        return FakeTensor(self.mode, empty, _CPU)

    def _again(self, recipe, tensors: list[torch.Tensor]):
        kind, *how = recipe
        if kind == "list":
            return how[0](self._again(one, tensors) for one in how[1])
        if kind == "none":
            return None
        if kind == "operand":
            return tensors[how[0]]
        place, (offset, shape, strides, dtype) = how
        if place is None:
            made = torch.empty_strided(shape, strides, dtype=dtype, device="meta")
        else:
            made = torch.empty(0, dtype=dtype, device="meta")
            made.set_(tensors[place].untyped_storage(), offset, shape, strides)
        return FakeTensor(self.mode, made, _CPU)


def _recipe(result, tensors: list[torch.Tensor]) -> tuple | None:
    """How a result is made again of operands with the same shapes; None: not from shapes alone."""
    if result is None:
        return ("none",)
    if isinstance(result, (list, tuple)):
        parts = [_recipe(one, tensors) for one in result]
        own = [one.untyped_storage()._cdata for one in tensors_of(result)]
        shared = {one.untyped_storage()._cdata for one in tensors}
        fresh = [one for one in own if one not in shared]
        if None in parts or len(fresh) != len(set(fresh)):
            return None
        return ("list", list if isinstance(result, list) else tuple, parts)
    if not isinstance(result, torch.Tensor):
        return None
    for place, one in enumerate(tensors):
        if one is result:
            return ("operand", place)
    if (
        type(result) is not FakeTensor
        or result.fake_device != _CPU
        or result.layout is not torch.strided
    ):
        return None
    storage = result.untyped_storage()._cdata
    for place, one in enumerate(tensors):
        if one.untyped_storage()._cdata == storage:
            return ("made", place, layout(result)) if type(one) is FakeTensor else None
    fills = _reach(result) == result.untyped_storage().nbytes()
    return ("made", None, layout(result)) if fills and result.storage_offset() == 0 else None


def _reach(tensor: torch.Tensor) -> int:
    """The bytes of memory up to the last element."""
    if tensor.numel() == 0:
        return 0
    steps = zip(tensor.shape, tensor.stride())
    return (1 + sum((extent - 1) * stride for extent, stride in steps)) * tensor.element_size()
