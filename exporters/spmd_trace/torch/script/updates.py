"""Steps of a script that updates its parameters without an optimizer of torch.

A step is over where a parameter has changed since its last use, and there was a backward in
between.
"""

import contextlib
import functools

import torch

from .. import recorder as recording
from ..frameworks.cpu import replaced
from ..frameworks.fsdp import local_shard
from . import roles
from .evidence import content
from .sources import Sources, tensors

# What asks a parameter for something and does not compute with it.
_ASKS = set(
    "__get__ __set__ __len__ __repr__ __hash__ __format__ __deepcopy__ __reduce_ex__".split()
)
_ASKS |= set("size dim numel nelement ndimension element_size stride storage_offset".split())
_ASKS |= set("data_ptr untyped_storage is_contiguous is_floating_point is_complex type".split())
_ASKS |= set("_has_compatible_shallow_copy_type detach requires_grad_ retain_grad".split())
_ASKS |= set("register_hook backward equal allclose".split())
_ASKS |= set("register_post_accumulate_grad_hook new_zeros new_empty new_ones new_full".split())
_ASKS |= set("new_tensor zeros_like empty_like ones_like full_like rand_like randn_like".split())

_TRANSPOSED = set("T mT H mH".split())  # properties that compute


def trained_in(func, args) -> list[torch.Tensor]:
    """The tensors that collect gradients, among those that a function computes with."""
    name = getattr(func, "__name__", "")
    if name == "__get__":  # of a property, such as `T`
        name = getattr(getattr(func, "__self__", None), "__name__", "")
        name = name if name in _TRANSPOSED else "__get__"
    initializes = name.endswith("_") and not name.endswith(
        "__"
    )  # a leaf is written for no other reason
    if not torch.is_grad_enabled() or initializes or name in _ASKS:
        return []
    return [one for one in tensors(args) if _is_trained(one)]


def _is_trained(tensor: torch.Tensor) -> bool:
    with torch._C.DisableTorchFunction():
        return tensor.requires_grad and tensor.is_leaf


class Updates:
    """Counts changes of what is trained."""

    def __init__(self) -> None:
        self.count = 0
        self.trained: dict[int, torch.Tensor] = {}  # by storage: what has been changed
        self._used: dict[int, tuple[torch.Tensor, int]] = {}  # by storage: as it was when used
        self._due = False
        self.asked = False  # whether there was a backward
        self.sources = Sources()
        # What the script passes to a transform that differentiates, and what it has passed before.
        self._passed: list[torch.Tensor] = []
        self.replaced: list[tuple[torch.Tensor, torch.Tensor]] = []

    def trains(self, parameters: list[torch.Tensor]) -> bool:
        """Whether what is passed to a transform is what the script trains: of several, such as the
        place where a curve is differentiated, that of most elements."""
        return sum(map(torch.numel, parameters)) >= sum(map(torch.numel, self._passed))

    def passed(self, parameters: list[torch.Tensor]) -> bool:
        """Whether what is passed to a transform has changed since the last backward."""
        before, changed = self._passed, False
        shapes = [[one.shape for one in of] for of in (before, parameters)]
        pairs = list(zip(before, parameters)) if shapes[0] == shapes[1] else []
        if pairs and self._due:
            with recording.unrecorded():
                changed = any(content(old) != content(new) for old, new in pairs)
        if changed or not pairs:
            self.trained = {roles.storage_of(one): one for one in parameters}
            self.replaced, self._passed = pairs, list(parameters)
        if changed:
            self.count += 1
            self._due = False
        return changed

    def use(self, tensors: list[torch.Tensor]) -> None:
        """Parameters, or copies of them, are used by a forward."""
        with recording.unrecorded():
            for tensor in [*tensors, *(one for leaf in tensors for one in self.sources.of(leaf))]:
                # What wraps a parameter may give it other memory.
                shard = local_shard(tensor).detach()
                if roles.storage_of(shard) not in self._used:
                    self._used[roles.storage_of(shard)] = (shard, content(shard))

    def look(self) -> None:
        """Counts a change, if there is one."""
        if not self._due:
            return
        with recording.unrecorded():
            now = {key: content(shard) for key, (shard, _) in self._used.items()}
            changed = {
                key: shard
                for key, (shard, before) in self._used.items()
                if None not in (before, now[key]) and now[key] != before
            }
        if changed and not roles.optimizers():  # else one of them is going to take the step
            self.trained |= changed
            self.count += 1
            self._used, self._due = {}, False

    def forget(self) -> None:
        """An optimizer takes the steps, or what was passed to a transform is not trained."""
        self._used, self._due = {}, False
        self._passed = []

    @contextlib.contextmanager
    def backwards(self):
        """Notes that gradients are there, while the context lasts."""

        def noting(original):
            @functools.wraps(original)
            def wrapper(*args, **kwargs):
                result = original(*args, **kwargs)
                self._due = self.asked = True
                return result

            return wrapper

        functions = {name: noting(getattr(torch.autograd, name)) for name in ("backward", "grad")}
        with replaced(torch.autograd, **functions):
            yield
