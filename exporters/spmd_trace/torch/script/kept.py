"""What a rank keeps of the first steps of a script, to be compared with the same script on one
rank: parameters, gradients that optimizers get, and the data.

Data are tensors that were there before a step, or drawn in it, as far as they have only been moved
or picked: what a rank takes of them is kept where it first computes with it, outside of backwards.
"""

import contextlib
import functools
import pathlib

import torch
from torch.optim import optimizer as optimizers
from torch.utils._python_dispatch import TorchDispatchMode

from ..frameworks.fsdp import local_shard
from . import roles
from .gradcheck import gradient_of, place_in

MOST_BYTES = 1 << 30  # of data

_MOVES = set("index index_select select slice stack cat clone _to_copy detach alias view t".split())
_MOVES |= set("_unsafe_view reshape transpose permute unsqueeze squeeze expand unbind".split())
_MOVES |= set("split split_with_sizes chunk narrow copy_ lift_fresh contiguous flip roll".split())
_DRAWS = set("rand randn randint randperm rand_like randn_like randint_like normal normal_".split())
_DRAWS |= set("uniform_ bernoulli bernoulli_ native_dropout multinomial random_".split())
_NORMS = {"native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update"}


class Kept:
    """`tell`: called with what there is to say when all steps are done, or the script."""

    def __init__(self, file: pathlib.Path, unguarded, tell, steps: int, nudge: float):
        """`steps`: how many are kept; `nudge`: the part by which parameters are changed before the
        first one."""
        self._file, self._unguarded, self._tell, self._nudge = file, unguarded, tell, nudge
        self._most = steps
        self._tensors: dict[str, torch.Tensor] = {}
        self._kept: dict = {"before": {}, "states": [], "gradients": [], "data": []}
        self._kept |= {"batch_norm": False, "halves": False}
        self._mode: _Data | None = None
        # By what optimizers train: the name of the parameter in whose memory it lies, and where.
        self._places = torch.utils.weak.WeakTensorKeyDictionary()
        self._owners: dict[str, torch.Tensor] = {}  # what is trained, by the name of all of it

    @property
    def steps(self) -> int:
        """Those that have begun."""
        return len(self._kept["states"])

    def begins(self, of_step: roles.Roles) -> None:
        """A step begins."""
        entries = {name: tensor for name, tensor, _ in of_step.parameters()}
        new = {name: one for name, one in entries.items() if name not in self._tensors}
        with torch.no_grad(), torch._C.DisableTorchFunction():
            self._tensors |= new  # some are trained from a later step on
            self._note_places()
            self._kept["before"] |= {name: one.detach().clone() for name, one in new.items()}
            if self._nudge and not self._kept["states"]:
                self._change()
            self._kept["states"].append(self._state())
        if self.steps > self._most:
            self.ends()
        self._kept["gradients"].append({})
        self._kept["data"].append([])
        if self._mode is None:
            known = {one.untyped_storage()._cdata for one in self._tensors.values()}
            buffers = (one for root in of_step.roots for one in root.buffers())
            known |= {local_shard(one).untyped_storage()._cdata for one in buffers}
            self._mode = _Data(self._kept, known)
            self._watch()
            self._mode.__enter__()  # for good: the process ends with the last step
        self._mode.open = True

    def ends(self) -> None:
        """The script, or what is to be kept of it."""
        if self.steps < 2 and not any(self._kept["gradients"]):
            return
        if self._mode is not None and self._mode.bytes > MOST_BYTES:
            self._tell(error="its data are too large to be kept")
        with self._unguarded(), torch._C._DisableTorchDispatch():
            torch.save(self._kept, self._file)
        self._tell(kept=str(self._file))

    def _note_places(self) -> None:
        """Of what optimizers train: what is sharded may get other memory in the first forward."""
        for one in (
            p for made in roles.optimizers() for group in made.param_groups for p in group["params"]
        ):
            place = place_in(self._tensors, local_shard(one))
            if place is not None and local_shard(one).is_contiguous():
                self._places[one] = place
                if self._tensors[place[0]].shape == local_shard(one).shape:
                    self._owners[place[0]] = one

    def _place_of(self, parameter: torch.Tensor) -> tuple[str, int] | None:
        """The name of the parameter in whose memory it lies, and where."""
        if parameter in self._places:
            return self._places[parameter]
        shard = local_shard(parameter)
        return place_in(self._tensors, shard) if shard.is_contiguous() else None

    def _state(self) -> dict[str, torch.Tensor]:
        now = {name: local_shard(one) for name, one in self._owners.items()}
        return {name: one.detach().clone() for name, one in (self._tensors | now).items()}

    def _change(self) -> None:
        drawn = torch.Generator().manual_seed(0)
        now = {name: local_shard(one) for name, one in self._owners.items()}
        for one in (self._tensors | now).values():
            if one.is_floating_point():
                factors = torch.randn(one.shape, generator=drawn, dtype=torch.float64)
                one.mul_((1 + self._nudge * factors).to(one.dtype))

    def _watch(self) -> None:
        optimizers.register_optimizer_step_pre_hook(self._before_step)
        optimizers.register_optimizer_step_post_hook(self._after_step)
        original = torch.autograd.backward

        @functools.wraps(original)
        def backward(*args, **kwargs):
            with self._mode.closed():
                return original(*args, **kwargs)

        torch.autograd.backward = backward

    def _before_step(self, optimizer, args, kwargs) -> None:
        """By parameter: parts of its gradient, flat, and where each begins."""
        found: dict[str, list] = {}
        with torch.no_grad(), torch._C.DisableTorchFunction():
            for parameter in (p for group in optimizer.param_groups for p in group["params"]):
                place, gradient = self._place_of(parameter), gradient_of(parameter)
                if place is not None and gradient is not None:
                    flat = gradient.flatten().double()
                    found.setdefault(place[0], []).append((place[1], flat))
        self._found, self._mode.communicates, self._mode.open = found, False, False

    def _after_step(self, optimizer, args, kwargs) -> None:
        self._mode.open = True
        gradients = self._kept["gradients"][-1]
        if not self._mode.communicates:  # else it sums gradients itself
            for name, parts in self._found.items():
                gradients.setdefault(name, parts)


class _Data(TorchDispatchMode):
    """Notes data where something is computed of them."""

    def __init__(self, kept: dict, known: set[int]):
        """`known`: storages that hold none."""
        super().__init__()
        self._kept, self._made, self._moved = kept, set(known), {}
        self.open, self.communicates, self.bytes = False, False, 0
        self._alive: list = []  # storages, whose numbers stay theirs
        self._noted: set = set()

    @contextlib.contextmanager
    def closed(self):
        """While a backward runs. What it makes of parameters is no data: some of it, as the buckets
        of DistributedDataParallel, is made by no operation that is seen here."""
        self.open = False
        yield
        made = (
            p for of in roles.optimizers() for group in of.param_groups for p in group["params"]
        )
        for gradient in (one.grad for one in made):
            if gradient is not None:
                self._make(local_shard(gradient))
        self.open = True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func._schema.name.split("::")[1]
        self.communicates |= func.namespace in ("c10d", "_c10d_functional")
        self._kept["batch_norm"] |= name in _NORMS
        given = [_local(one) for one in _tensors((args, kwargs))]
        moves = name in _MOVES
        data = bool(given) and all(self._is_data(one) for one in given)
        if self.open and not (moves and data):
            for one in given:
                if self._is_data(one):
                    self._note(one)
        result = func(*args, **kwargs)
        for one in map(_local, _tensors(result)):
            self._kept["halves"] |= one.dtype in (torch.float16, torch.bfloat16)
            if self.open and name in _DRAWS:
                self._moved[_key(one)] = one.untyped_storage()
            elif self.open and moves and data:
                self._moved[_key(one)] = one.untyped_storage()
            else:
                self._make(one)
        return result

    def _make(self, tensor: torch.Tensor) -> None:
        """It is none of the data from here on."""
        if _key(tensor) not in self._made:
            self._made.add(_key(tensor))
            self._alive.append(tensor.untyped_storage())
            self._moved.pop(_key(tensor), None)

    def _is_data(self, tensor: torch.Tensor) -> bool:
        return _key(tensor) in self._moved or _key(tensor) not in self._made

    def _note(self, tensor: torch.Tensor) -> None:
        plain = tensor.detach()
        key = (_key(tensor), tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))
        if key in self._noted or plain.dtype is torch.bool or plain.numel() < 2 or plain.is_meta:
            return
        self._noted.add(key)
        self._alive.append(tensor.untyped_storage())
        self.bytes += plain.numel() * plain.element_size()
        if self.bytes <= MOST_BYTES:
            self._kept["data"][-1].append(plain.clone())


def _key(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return getattr(tensor, "_local_tensor", tensor)


def _tensors(tree) -> list[torch.Tensor]:
    return [one for one in torch.utils._pytree.tree_leaves(tree) if isinstance(one, torch.Tensor)]
