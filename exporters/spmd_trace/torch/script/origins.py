"""Which parameters a rank has made by itself: by numbers that it drew, in their own extents.

What was a part of a larger tensor, such as a rank's rows of a whole weight, or came from elsewhere,
is not among them. Where a rank's rows of a fused weight lie in the whole depends on how they were
taken; what each rank has made by itself has no other place than that in which it is used.
"""

import torch

# In place, of no other tensor.
_FILLS = set("uniform_ normal_ zero_ fill_ exponential_ bernoulli_ log_normal_ cauchy_".split())
_FILLS |= set("geometric_ random_ trunc_normal_ eye_ ones_ zeros_ constant_".split())
_MAKES = set("empty zeros ones full rand randn normal eye empty_like zeros_like ones_like".split())
_MAKES |= set("full_like rand_like randn_like new_empty new_zeros new_ones new_full".split())
# What another rank has handed out, in a call that no function mode sees.
HANDED_OUT = {"scatter", "recv", "all_to_all", "all_to_all_single", "reduce_scatter"}
HANDED_OUT |= {"reduce_scatter_tensor"}


class Origins:
    """Notes the functions that a script calls before its first step."""

    def __init__(self) -> None:
        self._own: dict[int, torch.UntypedStorage] = {}  # by storage

    def note(self, func, args: tuple, kwargs: dict, result) -> None:
        with torch._C.DisableTorchFunction():
            self._note(func, args, kwargs, result)

    def is_own(self, tensor: torch.Tensor) -> bool:
        """Whether all of it, and nothing else, is what the rank has made."""
        with torch._C.DisableTorchFunction():
            return _storage(tensor)._cdata in self._own and _is_all(tensor)

    def _note(self, func, args: tuple, kwargs: dict, result) -> None:
        name = getattr(func, "__name__", "")
        given = _tensors((args, kwargs))
        if name in _FILLS:
            for target in given[:1]:
                self._mark(target, _is_all(target))
            return
        in_place = (name.endswith("_") and not name.endswith("__")) or name == "__setitem__"
        made = given[:1] if in_place else _tensors(result)
        if not in_place and (out := kwargs.get("out")) is not None:
            made = _tensors(out)
        storages = {_storage(one)._cdata for one in given}
        for one in made:
            sources = [each for each in given if each is not one and each.is_floating_point()]
            own = all(self.is_own(each) and each.numel() <= one.numel() for each in sources)
            if in_place:
                if not own:
                    self._mark(one, False)
            elif _storage(one)._cdata not in storages:  # else a view
                self._mark(one, own and (bool(sources) or name in _MAKES))

    def _mark(self, tensor: torch.Tensor, own: bool) -> None:
        storage = _storage(tensor)
        if own:
            self._own[storage._cdata] = storage
        else:
            self._own.pop(storage._cdata, None)


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage:
    return tensor.untyped_storage()


def _is_all(tensor: torch.Tensor) -> bool:
    return tensor.numel() * tensor.element_size() == _storage(tensor).nbytes()


def _tensors(items) -> list[torch.Tensor]:
    """Those with memory of their own, in order."""
    leaves = torch.utils._pytree.tree_leaves(items)
    found = [one for one in leaves if isinstance(one, torch.Tensor)]
    return [one for one in found if one.layout is torch.strided and one.device.type == "cpu"]
