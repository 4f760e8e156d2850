"""Composite functions that are recorded as one operation.

Torch takes some functions apart before it dispatches them: a linear layer merges the leading
dimensions, multiplies matrices and splits them again. A dimension that is sharded cannot be
merged, so these are recorded as the program calls them; all other functions are recorded from
what they dispatch. Autograd still works on the parts: the operation owns all their nodes.
"""

import contextlib

import torch
import torch.nn.functional as F
from torch.distributed.tensor import DTensor
from torch.overrides import TorchFunctionMode

_aten = torch.ops.aten


def _einsum(equation, *tensors):
    return (equation, list(tensors[0] if isinstance(tensors[0], (list, tuple)) else tensors))


_COMPOSITES = {
    F.linear: (_aten.linear.default, None),
    torch.matmul: (_aten.matmul.default, None),
    torch.Tensor.matmul: (_aten.matmul.default, None),
    torch.Tensor.__matmul__: (_aten.matmul.default, None),
    torch.einsum: (_aten.einsum.default, _einsum),
    # By parts, it is a copy of bytes.
    torch.Tensor.__deepcopy__: (_aten.clone.default, lambda tensor, memo: (tensor,)),
}


class Composites(TorchFunctionMode):
    """Sees the functions that the program calls, while they are whole."""

    def __init__(self, recorder):
        super().__init__()
        self.recorder = recorder
        # Functions of other packages: called with the arguments and a way to run the function.
        self.handlers: dict = {}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}

        def run():
            return func(*args, **kwargs)

        if self.recorder.is_hidden:
            return run()
        if handler := self.handlers.get(func):
            return handler(func, run, args, kwargs)
        if func not in _COMPOSITES or any(isinstance(one, DTensor) for one in args):
            return run()  # what is done to the pieces of a DTensor is dispatched
        overload, arrange = _COMPOSITES[func]
        with _casts_done(args, kwargs) as (args, kwargs):
            call = args, kwargs
            if arrange is not None:
                args, kwargs = arrange(*args, **kwargs), {}
            return self.recorder.fold(overload, lambda: func(*call[0], **call[1]), args, kwargs)


@contextlib.contextmanager
def _casts_done(args: tuple, kwargs: dict):
    """The arguments as autocast would cast them: these casts are operations of their own."""
    if not torch.is_autocast_enabled("cpu"):
        yield args, kwargs
        return
    dtype = torch.get_autocast_dtype("cpu")

    def cast(item):
        if isinstance(item, torch.Tensor) and item.dtype == torch.float32:
            return item.to(dtype)
        return type(item)(map(cast, item)) if type(item) in (list, tuple) else item

    args, kwargs = cast(tuple(args)), {name: cast(item) for name, item in kwargs.items()}
    with torch.autocast("cpu", enabled=False):
        yield args, kwargs
