"""Checks the gradients of a step by finite differences, while all ranks run.

Where the step begins, each rank forks for each thing to try. The fork gets process groups of its
own, changes a parameter, and goes on with the script up to the optimizer: it tells with which
values the backwards began. The first one changes nothing and keeps the gradients that the optimizer
would get. All copies of a parameter are changed together, and blocks of it.

The sum of these values over all ranks is the loss. Its difference quotient, and what the gradients
promise, are told apart by rank and parameter; `spmd_trace.gradcheck` says what they mean.
"""

import contextlib
import datetime
import functools
import math
import os
import pathlib
import re
import signal
import time

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.tensor import DTensor
from torch.optim import optimizer as optimizers

from ... import gradcheck
from ...ranks import line_of
from ..frameworks.fsdp import local_shard
from . import evidence

_PATIENCE = 120.0  # seconds, for one fork
_CHANGE = 2e-3  # of the loss, far above its rounding errors in 32 bits
_LARGEST = 3e-2  # of the norm of a parameter
_DTYPES = (torch.float32, torch.float64)


class Failed(Exception):
    """Why the gradients of this script cannot be checked."""


class Files:
    """What ranks tell each other: a file for each word of each rank, which is there at once or not
    at all."""

    def __init__(self, folder: pathlib.Path, unguarded):
        """`unguarded`: a context in which files are written although the script may write none."""
        self._folder, self._unguarded = folder, unguarded

    def path(self, rank: int, label: str) -> pathlib.Path:
        return self._folder / str(rank) / f"gradcheck {re.sub('[^-+.0-9a-zA-Z ]', '_', label)}"

    def tell(self, rank: int, label: str, what) -> None:
        """Numbers, lists and dictionaries of them, and tensors."""
        path = self.path(rank, label)
        partial = path.with_name(path.name + ".partial")
        with self._unguarded():
            torch.save(what, partial)
            partial.replace(path)

    def wait_for(self, rank: int, label: str):
        path, end = self.path(rank, label), time.monotonic() + _PATIENCE
        while not path.exists():
            if time.monotonic() > end:
                raise Failed(f"rank {rank} does not come to {label}")
            time.sleep(0.002)
        with self._unguarded():
            return torch.load(path)


class GradientCheck:
    """One rank's part of the check; `observed`: kinds by name and axis, and the axes with their
    sizes and strides."""

    def __init__(self, files: Files, rank: int, world: int, observed: dict, seconds: float):
        self.files, self.rank, self.world = files, rank, world
        self.kinds, self.axes = observed["kinds"], observed["axes"]
        self.apart = observed["apart"]  # ranks run programs of their own
        self.end = time.monotonic() + seconds
        self._known: dict[int, dict[str, list]] = {}  # by rank: the gradients that it would use
        self._tried: _Try | None = None
        self.label = ""  # of what this process tries, if it is a fork

    def run(self, entries: list[tuple[str, torch.Tensor, dict]]) -> list[dict] | None:
        """What was found of each parameter, in the process that began; None in one that goes on
        with the script.

        `entries`: parameters, as name, local tensor and what their wrappers say of their types.
        """
        others: dict[str, list[str]] = {}
        if self.apart:
            entries, copies, others = self._equal_ones(entries)
        else:
            copies = {name: self._copies(name, stated) for name, _, stated in entries}
        tensors = {name: tensor for name, tensor, _ in entries if copies[name] is not None}
        tensors = {n: t for n, t in tensors.items() if t.dtype in _DTYPES and t.is_contiguous()}
        if not any(self._exchanged("number of parameters", len(tensors))):
            raise Failed("of no parameter it is known whether ranks have copies or blocks of it")
        base = self._try("base", tensors, {})
        if base is None:
            return None
        directions, facts = {}, {}
        for name, tensor in tensors.items():
            found = self._direction(name, tensor, copies[name])
            if found is not None:
                directions[name], facts[name] = found
        everywhere = self._exchanged("facts", {"loss": base["loss"], "facts": facts})
        loss = sum(one["loss"] for one in everywhere)
        rows: list[dict] = []
        for name in _chosen(everywhere):
            if not self._goes_on(f"go on to {name}"):
                break
            row = self._measured(name, tensors, directions, everywhere, loss)
            if row is None:
                return None
            rows.append(row)
        found = gradcheck.relative(rows, self.world)
        for row in rows:  # where a kink is near, what is found depends on the distance
            if found.get(row["name"], 1) == 1 or not self._goes_on(f"go back to {row['name']}"):
                continue
            nearer = self._measured(row["name"], tensors, directions, everywhere, loss, 0.3)
            if nearer is None:
                return None
            row["nearer"] = nearer["slopes"]
        return rows + [row | {"name": name} for row in rows for name in others.get(row["name"], [])]

    def _goes_on(self, label: str) -> bool:
        """Whether there is time left, by the clock of the first rank."""
        if self.rank == 0:
            self.files.tell(0, label, time.monotonic() < self.end)
        return self.files.wait_for(0, label)

    def _measured(
        self, name: str, tensors, directions, everywhere, loss: float, part: float = 1.0
    ) -> dict | None:
        """`part`: of the distance at which the loss is usually asked for."""
        facts = [one["facts"][name] for one in everywhere if name in one["facts"]]
        promised = sum(one["slope"] for one in facts if one["leads"])
        norm = math.sqrt(sum(one["norm"] ** 2 for one in facts if one["leads"]))
        size = math.sqrt(sum(one["size"] ** 2 for one in facts if one["leads"]))
        moved = math.sqrt(sum(one["moved"] ** 2 for one in facts if one["leads"]))
        step = _LARGEST * max(norm, 1e-2 * size) / max(moved, 1e-30)
        if promised:
            step = min(step, _CHANGE * max(abs(loss), 1e-3) / abs(promised))
        step *= part
        row = {"name": name, "promised": promised, "apart": max(one["apart"] for one in facts)}
        slopes = []
        for sign in (1, -1):
            changed = {name: sign * step * directions[name]} if name in directions else {}
            answer = self._try(f"{name} {sign * part:+}", tensors, changed)
            if answer is None:
                return None
            there = sum(self._exchanged(f"loss {name} {sign * part:+}", answer["loss"]))
            slopes.append((there - loss) / (sign * step))
        noise = 4e-7 * max(abs(loss), 1e-6) * math.sqrt(self.world) / step
        return row | {"slopes": slopes, "noise": noise}

    # What ranks have of a parameter.

    def _equal_ones(
        self, entries
    ) -> tuple[list, dict[str, list[int] | None], dict[str, list[str]]]:
        """Where ranks run programs of their own, such as stages that share an embedding: parameters
        by the first name that the same values have anywhere, the ranks that have them, and their
        other names. Nothing is known of one number everywhere.
        """
        own = {name: evidence.digest(tensor) for name, tensor, _ in entries}
        everywhere = self._exchanged("values", own)
        names: dict[str, list[str]] = {}
        for of in everywhere:
            for name, digest in of.items():
                if digest and name not in names.setdefault(digest, []):
                    names[digest].append(name)
        first = {name: names[digest][0] if digest else name for name, digest in own.items()}
        copies = {
            first[name]: digest
            and [rank for rank, of in enumerate(everywhere) if digest in of.values()]
            for name, digest in own.items()
        }
        entries = [(first[name], tensor, stated) for name, tensor, stated in entries]
        return entries, copies, {of[0]: of[1:] for of in names.values()}

    def _copies(self, name: str, stated: dict) -> list[int] | None:
        """The ranks that have the same values as this one; None where that is not known."""
        ranks = [self.rank]
        for axis, size, stride in self.axes:
            kind = (self.kinds.get(name, {}) | stated).get(axis, "?")
            if kind in ("R", "I"):
                ranks = [other for one in ranks for other in line_of(one, size, stride)]
            elif kind != "V" and not kind.startswith("S("):
                return None
        return sorted(ranks)

    def _direction(self, name: str, tensor: torch.Tensor, copies: list[int]):
        """Where to move a parameter, the same for all copies, and what its gradient promises of
        that."""
        whole = torch.full((tensor.numel(),), math.nan, dtype=torch.float64)
        apart = 0.0
        for rank in copies:
            for start, part in self._gradients(rank).get(name, []):
                here = whole[start : start + part.numel()]
                both = ~here.isnan()
                if bool(both.any()):
                    scale = float(here[both].abs().max()) or 1.0
                    apart = max(apart, float((here[both] - part[both]).abs().max()) / scale)
                here[~both] = part[~both]
        known = ~whole.isnan()
        if not bool(known.any()):
            return None
        gradient = torch.where(known, whole, 0.0)
        seed = torch.Generator().manual_seed(copies[0] + sum(map(ord, name)))
        random = torch.where(
            known, torch.randn(len(whole), generator=seed, dtype=torch.float64), 0.0
        )
        length = float(gradient.norm())
        # Along the gradient only its length would count: a part that is missing is as long across
        # it.
        random *= math.sqrt(int(known.sum())) / 2 / max(float(random.norm()), 1e-30)
        random = -random if float(random @ gradient) < 0 else random
        direction = random + (gradient / length if length else 0.0)
        facts = {
            "leads": copies[0] == self.rank,
            "slope": float(gradient @ direction),
            "norm": float(tensor.detach().norm()),
            "size": math.sqrt(int(known.sum())),
            "moved": float(direction.norm()),
            "apart": apart,
            "shape": list(tensor.shape),
        }
        return direction.view(tensor.shape).to(tensor.dtype), facts

    # Forks.

    def _try(self, label: str, tensors: dict, changes: dict) -> dict | None:
        """What a fork with these changes tells; None in the fork."""
        pid = os.fork()
        if pid == 0:
            self.label = label
            self._become(tensors, changes)
            return None
        end = time.monotonic() + _PATIENCE
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise Failed(f"a try is not done after {_PATIENCE:.0f} s")
            time.sleep(0.002)
        if not self.files.path(self.rank, label).exists():
            raise Failed("the process of a try left nothing")
        return self._outcome(self.rank, label)

    def _outcome(self, rank: int, label: str) -> dict:
        answer = self.files.wait_for(rank, label)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def _become(self, tensors: dict, changes: dict) -> None:
        reconnect(self.files.path(0, f"{self.label} meeting"))
        with torch.no_grad(), torch._C.DisableTorchFunction():
            for name, change in changes.items():
                tensors[name].add_(change)
        self._tried = _Try(self._end, tensors)
        self._tried.begin()

    def updated(self) -> None:
        """Ends a fork whose script has taken its first step by hand. How far a parameter moved
        stands for its gradient, of which it is a multiple where nothing is adapted and no weight
        decays; else one rank disagrees as well.
        """
        self._tried.updated()

    def _end(self, **what) -> None:
        self.files.tell(self.rank, self.label, what)
        os._exit(0)

    def fails(self, reason: str) -> None:
        """Ends a fork that does not come to the optimizer; does nothing in another process."""
        if self.label:
            self._end(error=reason)

    def _exchanged(self, label: str, what) -> list:
        """What all ranks have to say, in their order."""
        self.files.tell(self.rank, label, what)
        return [self.files.wait_for(rank, label) for rank in range(self.world)]

    def _gradients(self, rank: int) -> dict[str, list]:
        if rank not in self._known:
            self._known[rank] = self._outcome(rank, "base")["gradients"]
        return self._known[rank]


class _Try:
    """What a fork tells: the sum of what its backwards begin with, and the gradients at the first
    optimizer step."""

    def __init__(self, end, tensors: dict[str, torch.Tensor]):
        """`end` ends the process with what it has to tell."""
        self.end, self.tensors = end, tensors
        self.loss, self._depth = 0.0, 0

    def begin(self) -> None:
        optimizers.register_optimizer_step_pre_hook(self._steps)
        with torch.no_grad(), torch._C.DisableTorchFunction():
            self.before = {name: tensor.detach().clone() for name, tensor in self.tensors.items()}
        original = torch.autograd.backward

        @functools.wraps(original)
        def backward(tensors, grad_tensors=None, *args, **kwargs):
            with self._backward():
                if self._depth == 1:
                    self._begins(tensors, grad_tensors)
                return original(tensors, grad_tensors, *args, **kwargs)

        compute = torch.autograd.grad

        @functools.wraps(compute)
        def grad(outputs, inputs, grad_outputs=None, *args, **kwargs):
            given = [inputs] if isinstance(inputs, torch.Tensor) else list(inputs)
            with self._backward():
                if self._depth == 1 and all(one.is_leaf for one in given):
                    self._begins(outputs, grad_outputs)
                return compute(outputs, inputs, grad_outputs, *args, **kwargs)

        # For good: the process ends with the step.
        torch.autograd.backward, torch.autograd.grad = backward, grad
        # What limits each element by itself leaves no common factor.
        torch.nn.utils.clip_grad_value_ = lambda *args, **kwargs: None
        torch.nn.utils.clip_grad.clip_grad_value_ = torch.nn.utils.clip_grad_value_

    @contextlib.contextmanager
    def _backward(self):
        """What comes inside of it, by itself or by way of what watches functions, is no other
        one."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def _begins(self, tensors, gradients) -> None:
        """Adds what a backward begins with; what is given a gradient is no loss."""
        roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        given = gradients if isinstance(gradients, (list, tuple)) else [gradients]
        with torch.no_grad(), torch._C.DisableTorchFunction():
            for root, gradient in zip(roots, [*given, *[None] * len(roots)]):
                local = root._local_tensor if isinstance(root, DTensor) else root
                if gradient is None and local.numel() == 1:
                    self.loss += float(local.detach().double().sum())

    def _steps(self, optimizer, args, kwargs) -> None:
        self.end(loss=self.loss, gradients=self._gradients(optimizer))

    def updated(self) -> None:
        with torch.no_grad(), torch._C.DisableTorchFunction():
            moved = {
                name: [(0, (self.before[name] - tensor).flatten().double())]
                for name, tensor in self.tensors.items()
            }
        self.end(loss=self.loss, gradients=moved)

    def _gradients(self, optimizer) -> dict[str, list]:
        """By parameter: parts of its gradient, flat, and where each begins."""
        found: dict[str, list] = {}
        with torch.no_grad(), torch._C.DisableTorchFunction():
            for parameter in (p for group in optimizer.param_groups for p in group["params"]):
                shard, gradient = local_shard(parameter), gradient_of(parameter)
                place = place_in(self.tensors, shard)
                if place is not None and shard.is_contiguous():
                    zeros = torch.zeros(shard.numel(), dtype=torch.float64)
                    flat = zeros if gradient is None else gradient.flatten().double()
                    found.setdefault(place[0], []).append((place[1], flat.clone()))
        return found


def gradient_of(parameter: torch.Tensor) -> torch.Tensor | None:
    """What an optimizer makes of its gradient, on this rank: a sum that DTensor has put off is
    made."""
    gradient = parameter.grad
    if isinstance(gradient, DTensor) and isinstance(parameter, DTensor):
        if gradient.placements != parameter.placements:
            gradient = gradient.redistribute(placements=parameter.placements)
    return None if gradient is None else local_shard(gradient).detach()


def place_in(tensors: dict[str, torch.Tensor], part: torch.Tensor) -> tuple[str, int] | None:
    """The parameter in whose memory a tensor lies, and the element where it begins."""
    start = part.data_ptr()
    for name, whole in tensors.items():
        behind = start - whole.data_ptr()
        room = whole.numel() * whole.element_size()
        if (
            part.dtype == whole.dtype
            and 0 <= behind
            and behind + part.numel() * part.element_size() <= room
        ):
            return name, behind // whole.element_size()
    return None


def _chosen(everywhere: list[dict]) -> list[str]:
    """Parameters in the order in which to try them: first one of each kind, such as one layer's."""
    names = list(dict.fromkeys(name for one in everywhere for name in one["facts"]))
    shapes = {name: facts["shape"] for one in everywhere for name, facts in one["facts"].items()}
    kinds: dict[tuple, list[str]] = {}
    for name in names:
        kinds.setdefault((re.sub(r"\d+", "*", name), *shapes[name]), []).append(name)
    rounds = max(map(len, kinds.values()), default=0)
    return [of[turn] for turn in range(rounds) for of in kinds.values() if turn < len(of)]


def reconnect(meeting: pathlib.Path) -> None:
    """Process groups of a fork: the threads that served those of its parent are not there."""
    distributed = distributed_c10d._world
    for group in list(distributed.pg_map):
        ranks = distributed.pg_group_ranks[group]
        name = distributed.pg_names[group]
        store = dist.FileStore(f"{meeting} {name}", len(ranks))
        patience = datetime.timedelta(seconds=_PATIENCE)
        backend = dist.ProcessGroupGloo(store, ranks[dist.get_rank()], len(ranks), patience)
        kind = dist.ProcessGroup.BackendType.CUSTOM
        group._register_backend(torch.device("cpu"), kind, backend)
