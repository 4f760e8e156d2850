"""Names of tensors: the variables of the script that hold them."""

import torch
from torch.distributed.tensor import DTensor

from ..locations import user_frames

_DEPTH = 3


def names(storages: set[int], storage_of) -> dict[int, str]:
    """By storage, the shortest name of a variable that holds it: `params.w0` of `params["w0"]`."""
    found: dict[int, str] = {}
    for frame in user_frames():
        for scope in (frame.f_locals, frame.f_globals):
            _search([(name, value) for name, value in scope.items()], storages, storage_of, found)
    return found


def _search(items: list, storages: set[int], storage_of, found: dict[int, str]) -> None:
    seen: set[int] = set()
    for _ in range(_DEPTH + 1):
        below = []
        for name, value in items:
            if issubclass(type(value), torch.Tensor):
                local = value._local_tensor if isinstance(value, DTensor) else value
                key = storage_of(local)
                if key in storages:
                    found.setdefault(key, name)
            elif id(value) not in seen:
                seen.add(id(value))
                below += [(f"{name}.{key}", one) for key, one in _members(value)]
        items = below


def _members(value) -> list:
    if isinstance(value, dict):
        return [(key, one) for key, one in value.items() if isinstance(key, (str, int))]
    if isinstance(value, (list, tuple)):
        return list(enumerate(value))
    if type(value).__module__ in ("builtins", "torch") or isinstance(
        value, (type, torch.nn.Module)
    ):
        return []
    return list(vars(value).items()) if hasattr(value, "__dict__") else []
