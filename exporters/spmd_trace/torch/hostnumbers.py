"""Numbers that the program takes out of tensors, such as the norm that scales a clip.

`tensor.item()` gives a float that remembers its value in the trace; arithmetic on it is recorded.
When such a number comes back as an operand it is found by its exact bits, since torch strips
Python classes from numbers.
"""

import contextlib

import torch

from . import operands


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


_LIST = torch.Tensor.tolist


class HostSizes(list):
    """Whole numbers with the tensor that they were taken from, such as sizes of blocks."""

    def __init__(self, tensor: torch.Tensor):
        super().__init__(_LIST(tensor))
        self.tensor = tensor

    def tolist(self) -> "HostSizes":
        """As an array would; the tensor is not forgotten."""
        return self


class HostNumbers:
    """The host numbers of one recording, by their bits."""

    def __init__(self, recorder) -> None:
        self._recorder = recorder
        self._values: dict[str, object] = {}

    def _track(self, value, number: float) -> HostNumber:
        tracked = HostNumber(number)
        tracked.recorder = self
        if not number.is_integer():  # a whole number is too common to be recognised by its bits
            self._values[number.hex()] = value
        return tracked

    def value_of(self, item):
        """The value of a number that the program computed; other items are returned unchanged."""
        if isinstance(item, float) and item.hex() in self._values:
            return self._values[item.hex()]
        return operands.number(float(item) if isinstance(item, HostNumber) else item)

    def derive(self, name: str, left, right, result: float) -> HostNumber:
        with self._recorder.hidden():
            holder = torch.tensor(result)
        op = self._recorder.emit(name, [left, right], [holder], {})
        return self._track(op.outs[0], result)

    @contextlib.contextmanager
    def watched(self):
        """Follows `item` of floating tensors and `tolist` of others while the context lasts."""
        original = torch.Tensor.item

        def item(tensor):
            recorder = self._recorder
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
                return HostSizes(tensor) if sizes else _LIST(tensor)

        torch.Tensor.item, torch.Tensor.tolist = item, tolist
        try:
            yield
        finally:
            torch.Tensor.item, torch.Tensor.tolist = original, _LIST
