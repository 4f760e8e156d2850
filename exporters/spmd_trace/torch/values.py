"""The value table: which tensor of the running program is which value of the trace.

Torch mutates and aliases; a trace is in single assignment. A tensor is found by its object, then
by storage and geometry. Each storage keeps its writes in order, so that a value that was
overwritten through another view is seen to be stale and can be derived again.
"""

import ctypes
import dataclasses
import functools

import torch

DTYPES = {
    torch.bool: "bool",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.float8_e4m3fn: "f8e4m3",
    torch.float8_e5m2: "f8e5m2",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.complex64: "c64",
    torch.complex128: "c128",
}


def elements(tensor: torch.Tensor) -> torch.Tensor:
    """A copy, all of it in one piece."""
    return tensor.detach().resolve_conj().resolve_neg().clone().contiguous().flatten()


def raw_bytes(tensor: torch.Tensor) -> bytes:
    """Those of a contiguous tensor in memory; torch may be installed without NumPy."""
    size = tensor.numel() * tensor.element_size()
    return ctypes.string_at(tensor.data_ptr(), size) if size else b""


def _unseen(method):
    """Lets a method look at tensors without the function modes of the program seeing it."""

    @functools.wraps(method)
    def wrapper(*args, **kwargs):
        with torch._C.DisableTorchFunction():
            return method(*args, **kwargs)

    return wrapper


@dataclasses.dataclass(eq=False)
class Value:
    """One value of the trace; `requires_grad` is what torch said where it was last used."""

    dtype: str
    shape: list[int]
    claims: dict = dataclasses.field(default_factory=dict)
    alias_of: "Value | None" = None
    grad_of: "Value | None" = None
    # The parameter in whose `grad` it was seen after a backward, where nothing was seen before.
    arrived_for: "Value | None" = None
    requires_grad: bool | None = None
    mesh: str | None = None  # None is the first mesh of the program
    key: tuple | None = None
    span: tuple[int, int] = (0, 0)
    tick: int = 0

    @property
    def root(self) -> "Value":
        """The value that all names of its storage go back to."""
        value = self
        while value.alias_of is not None:
            value = value.alias_of
        return value

    @property
    def floating(self) -> bool:
        return self.dtype[0] in "fbc" and self.dtype != "bool"


class ValueTable:
    """Finds and makes values; `tick` counts definitions."""

    def __init__(self) -> None:
        self.tick = 0
        self._by_object = torch.utils.weak.WeakTensorKeyDictionary()
        self._by_key: dict[tuple, list[Value]] = {}
        self._storages: dict[int, object] = {}
        self._writes: dict[int, list[Value]] = {}

    @staticmethod
    @_unseen
    def key(tensor: torch.Tensor) -> tuple:
        storage = tensor.untyped_storage()._cdata
        place = (storage, tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))
        return (*place, tensor.dtype)

    @staticmethod
    @_unseen
    def span(tensor: torch.Tensor) -> tuple[int, int]:
        """The first and one past the last byte that the tensor can reach."""
        if tensor.numel() == 0:
            return (0, 0)
        reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
        start, size = tensor.storage_offset(), tensor.element_size()
        return (start * size, (start + reach + 1) * size)

    @_unseen
    def knows_storage(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._storages

    @_unseen
    def define(self, tensor: torch.Tensor, alias_of: Value | None, written: bool) -> Value:
        """Makes the value that `tensor` holds from now on."""
        self.tick += 1
        value = Value(DTYPES[tensor.dtype], list(tensor.shape), alias_of=alias_of)
        value.key, value.span, value.tick = self.key(tensor), self.span(tensor), self.tick
        if not value.floating:
            value.requires_grad = False
        storage = tensor.untyped_storage()
        # The storage is kept, never the tensor: autograd looks at how often a tensor is shared.
        self._storages.setdefault(storage._cdata, storage)
        if written:
            self._writes.setdefault(storage._cdata, []).append(value)
        self.bind(tensor, value)
        self._by_key.setdefault(value.key, []).append(value)
        return value

    def bind(self, tensor: torch.Tensor, value: Value) -> Value:
        """Says that a tensor object holds a value that is already defined."""
        self._by_object[tensor] = value
        return value

    @_unseen
    def find(self, tensor: torch.Tensor, before: int | None = None) -> Value | None:
        """The value of a tensor, stale or not; `before` prefers definitions up to that tick."""
        key = self.key(tensor)
        value = self._by_object.get(tensor)
        if value is not None and value.key == key:
            return value
        known = self._by_key.get(key)
        if not known:
            return None
        older = [v for v in known if before is not None and v.tick <= before]
        return (older or known)[-1]

    def later_writes(self, value: Value) -> list[Value]:
        """Writes to the bytes of `value` since its definition, from the last full cover on."""
        low, high = value.span
        later = [
            write
            for write in self._writes.get(value.key[0], [])
            if write.tick > value.tick and write.span[0] < high and write.span[1] > low
        ]
        for index in range(len(later) - 1, -1, -1):
            if later[index].span[0] <= low and later[index].span[1] >= high:
                return later[index:]
        return later

    @_unseen
    def parts(self, tensor: torch.Tensor) -> list[Value]:
        """What was written to some of the bytes of `tensor`: one value for each layout, the largest
        and newest first.
        """
        low, high = self.span(tensor)
        writes = self._writes.get(self.key(tensor)[0], [])
        inside = [one for one in writes if one.span[0] < high and one.span[1] > low]
        newest = {one.key: one for one in inside}.values()
        return sorted(newest, key=lambda one: (one.span[0] - one.span[1], -one.tick))

    @_unseen
    def holder(self, tensor: torch.Tensor) -> Value | None:
        """Some value of the same storage and dtype whose bytes contain those of `tensor`."""
        low, high = self.span(tensor)
        storage, *_, dtype = self.key(tensor)
        for key, values in reversed(self._by_key.items()):
            inside = values[-1].span[0] <= low and values[-1].span[1] >= high
            if key[0] == storage and key[-1] == dtype and inside:
                return values[-1]
        return None
