"""Numbers that the program takes out of tensors, such as the norm that scales a clip.

`tensor.item()` gives a float that remembers its value in the trace; arithmetic on it is recorded.
When such a number comes back as an operand it is found by its exact bits, since torch strips
Python classes from numbers.
"""

import contextlib
import itertools

import torch
from torch.distributed.tensor import DTensor

from . import operands


class Missing(RuntimeError):
    """The program asks for values that are not there."""

    def __init__(self, what: str):
        super().__init__(f"{what} depends on values, and large tensors have only shapes here")


class Unknown(float):
    """A number taken from a tensor without values: it may be computed with and printed, and decides
    nothing.

    Each is another one, so that its bits tell which it is.
    """

    _others = itertools.count(1)
    taken: set[str] = set()  # the bits of all of them

    def __new__(cls, number: float | None = None):
        made = super().__new__(cls, 1 + next(cls._others) * 2.0**-40 if number is None else number)
        cls.taken.add(float.hex(made))
        return made

    def __format__(self, form: str) -> str:
        return "?"

    def __repr__(self) -> str:
        return "?"

    __str__ = __repr__


def _undecided(self, *others):
    raise Missing("a branch or a size of the program")


for _name in "lt le gt ge eq ne bool int index trunc floor ceil round".split():
    setattr(Unknown, f"__{_name}__", _undecided)
Unknown.__hash__ = float.__hash__


def _stays_unknown(name: str):
    operation = getattr(float, name)

    def method(self, *others):
        result = operation(self, *(float(one) if isinstance(one, int) else one for one in others))
        return result if result is NotImplemented else Unknown()

    return method


for _name in "add sub mul truediv pow radd rsub rmul rtruediv rpow neg abs floordiv mod".split():
    setattr(Unknown, f"__{_name}__", _stays_unknown(f"__{_name}__"))


class HostNumber(float):
    """A float with the recorder that follows it."""

    recorder: "HostNumbers"

    def _binary(self, name: str, left, right, result: float):
        return self.recorder.derive(name, left, right, result)

    def __add__(self, other):
        return self._binary("add", self, other, float(self) + float(other))

    def __radd__(self, other):
        return self._binary("add", other, self, float(other) + float(self))

    def __sub__(self, other):
        return self._binary("sub", self, other, float(self) - float(other))

    def __rsub__(self, other):
        return self._binary("sub", other, self, float(other) - float(self))

    def __mul__(self, other):
        return self._binary("mul", self, other, float(self) * float(other))

    def __rmul__(self, other):
        return self._binary("mul", other, self, float(other) * float(self))

    def __truediv__(self, other):
        return self._binary("div", self, other, float(self) / float(other))

    def __rtruediv__(self, other):
        return self._binary("div", other, self, float(other) / float(self))

    def __pow__(self, other):
        return self._binary("pow", self, other, float(self) ** float(other))


class UnknownHostNumber(HostNumber, Unknown):
    """One that the recorder follows."""


class HostSizes(list):
    """Whole numbers with the tensor that they were taken from, such as sizes of blocks."""

    def __init__(self, numbers: list, tensor: torch.Tensor):
        super().__init__(numbers)
        self.tensor = tensor

    def tolist(self) -> "HostSizes":
        """As an array would; the tensor is not forgotten."""
        return self


class HostNumbers:
    """The host numbers of one recording, by their bits."""

    def __init__(self, recorder) -> None:
        self._recorder = recorder
        self._values: dict[str, object] = {}
        self._sizes: list[HostSizes] = []

    def _track(self, value, number: float) -> HostNumber:
        unknown = isinstance(number, Unknown)
        tracked = UnknownHostNumber(float(number)) if unknown else HostNumber(number)
        tracked.recorder = self
        if not number.is_integer():  # a whole number is too common to be recognised by its bits
            self._values[number.hex()] = value
        return tracked

    def value_of(self, item):
        """The value of a number that the program computed; other items are returned unchanged."""
        if isinstance(item, float) and item.hex() in self._values:
            return self._values[item.hex()]
        if isinstance(item, float) and item.hex() in Unknown.taken:  # before the recording
            with self._recorder.hidden():
                holder = torch.tensor(float(item))
            return self._values.setdefault(item.hex(), self._recorder.from_outside(holder))
        return operands.number(float(item) if isinstance(item, HostNumber) else item)

    def sizes_of(self, lists: dict[str, list]) -> dict[str, HostSizes]:
        """By word, the tensors that lists were taken from, which have come without them through
        code below Python. None where two of them are the same numbers: it is not known which."""
        found: dict[str, HostSizes] = {}
        for word, numbers in lists.items():
            for one in reversed(self._sizes):
                if one == numbers and self._recorder.values.find(one.tensor) is not None:
                    found[word] = one
                    break
        same = len(found) < len(lists) or len(set(map(tuple, lists.values()))) < len(lists)
        return {} if same else found

    def derive(self, name: str, left, right, result: float) -> HostNumber:
        if isinstance(left, Unknown) or isinstance(right, Unknown):
            result = Unknown()
        with self._recorder.hidden():
            holder = torch.tensor(float(result))
        op = self._recorder.emit(name, [left, right], [holder], {})
        return self._track(op.outs[0], result)

    @contextlib.contextmanager
    def watched(self):
        """Follows `item` of floating tensors and `tolist` of others while the context lasts."""
        original, list_of = torch.Tensor.item, torch.Tensor.tolist

        def item(tensor):
            recorder = self._recorder
            if isinstance(tensor, DTensor) and not recorder.is_hidden:
                tensor = tensor.full_tensor()
            follow = tensor.is_floating_point() and not recorder.is_hidden
            if not follow or recorder.is_bookkeeping(tensor):
                with recorder.hidden():
                    return original(tensor)
            with recorder.hidden():
                number = original(tensor)
                holder = torch.empty((), dtype=tensor.dtype)
            op = recorder.emit("aten._local_scalar_dense.default", [tensor], [holder], {})
            return self._track(op.outs[0], number)

        def tolist(tensor):
            sizes = not tensor.is_floating_point() and tensor.dim() == 1
            with self._recorder.hidden():
                numbers = list_of(tensor)
            if not sizes:
                return numbers
            self._sizes.append(HostSizes(numbers, tensor))
            return self._sizes[-1]

        torch.Tensor.item, torch.Tensor.tolist = item, tolist
        try:
            yield
        finally:
            torch.Tensor.item, torch.Tensor.tolist = original, list_of
