"""What leaves that are made anew for each step are made of.

Some scripts gather their shards, or convert their master weights, before each forward, and
differentiate with respect to the copies.
"""

import contextlib
import functools
import inspect

import torch
import torch.distributed as dist
from torch.utils.weak import TensorWeakRef, WeakTensorKeyDictionary

from .roles import storage_of
from .world import everywhere

_GATHERS = ("all_gather", "all_gather_into_tensor")
_MOST = 64  # tensors of which one is made: what is made of more, such as a batch, is no copy


def tensors(items) -> list[torch.Tensor]:
    """Those among arguments or results, and in lists of them."""
    items = items if isinstance(items, (list, tuple)) else [items]
    listed = [each for one in items for each in (one if isinstance(one, (list, tuple)) else [one])]
    return [one for one in listed if isinstance(one, torch.Tensor)]


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether it may be a copy. Torch refuses to swap tensors that are referred to, such as those
    that a module takes for its parameters."""
    return type(tensor) is torch.Tensor and tensor.is_floating_point()


class Sources:
    """Notes what the script makes of what, without a gradient, before an optimizer has stepped."""

    def __init__(self) -> None:
        # By tensor: those that it was made of, with the functions that were applied to them.
        self._made: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self._feeding: dict[int, set[str]] = {}  # by storage of a source of a leaf: functions

    def note(self, name: str, given: list[torch.Tensor], made: list[torch.Tensor]) -> None:
        """A function has made tensors of others."""
        with torch._C.DisableTorchFunction():
            given, made = ([one for one in of if _is_plain(one)] for of in (given, made))
            made = [one for one in made if not one.requires_grad]
            found: dict[int, tuple[TensorWeakRef, str]] = {}
            for one in given:
                for ref, function in self._made.get(one, ()):
                    if (source := ref()) is not None:
                        found[id(source)] = ref, function
                found[id(one)] = TensorWeakRef(one), name
            for one in made:
                if 0 < len(found) <= _MOST and all(one is not other for other in given):
                    self._made[one] = list(found.values())

    def of(self, leaf: torch.Tensor) -> list[torch.Tensor]:
        """What is still there of what a leaf was made of."""
        found = {}
        with torch._C.DisableTorchFunction():
            for ref, function in self._made.get(leaf, ()):
                if (source := ref()) is not None:
                    self._feeding.setdefault(storage_of(source), set()).add(function)
                    found[id(source)] = source
        return list(found.values())

    def fed_by(self, name: str, given: list[torch.Tensor]) -> list[torch.Tensor]:
        """Those of a function's arguments of which it has made a leaf before."""
        if not self._feeding:
            return []
        return [one for one in given if name in self._feeding.get(storage_of(one), ())]

    @contextlib.contextmanager
    def gathers(self, uses):
        """Notes what is gathered; `uses` is called with what leaves are gathered from."""

        def noting(gather):
            signature = inspect.signature(gather)

            @functools.wraps(gather)
            def wrapper(*args, **kwargs):
                output, given = list(signature.bind(*args, **kwargs).arguments.values())[:2]
                if used := self.fed_by(gather.__name__, [given]):
                    uses(used)
                result = gather(*args, **kwargs)
                self.note(gather.__name__, [given], tensors(output))
                return result

            return wrapper

        with contextlib.ExitStack() as stack:
            for name in _GATHERS:
                everywhere(stack, getattr(dist, name), noting(getattr(dist, name)))
            yield
