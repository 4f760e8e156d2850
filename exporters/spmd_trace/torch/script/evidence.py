"""What several ranks tell: which of the values that a step starts from are equal on them.

All ranks run up to the recorded step, with collectives that move data, and give a digest of every
value that the step reads. A value that is one number everywhere, such as a bias of zeros, says
nothing: blocks of it are equal, too.
"""

import contextlib
import hashlib
import itertools
import math

import torch

from ..communication import messages
from ..document import Op, Program
from ..values import Value, elements, raw_bytes
from . import shapes
from .fingerprints import Handle

# What passes a gradient on: the same addends or some of them, ordered otherwise or multiplied by a
# number.
_PASSES = set("view _unsafe_view reshape t transpose permute unsqueeze squeeze".split())
_PASSES |= set("alias detach clone _to_copy cat stack constant_pad_nd slice split".split())
_PASSES |= set("index index_select gather take masked_select select unbind".split())
_PASSES |= set("mul div _foreach_mul _foreach_div scale reinterpret convert".split())
_PASSES |= {"add"}  # to what was left of it before
_PASSES_IN_PLACE = _PASSES | {"copy"}


@contextlib.contextmanager
def _unseen():
    """Computes on plain memory: modes of the script, such as one that counts the operations of a
    checkpoint, see nothing of it."""
    with torch.no_grad(), torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        yield


_PERIOD = 4093  # a prime, so that it does not fall together with the rows of a parameter


def digest(tensor: torch.Tensor) -> str | Handle | None:
    """The same for the same bytes and the same shape; None where all elements are equal. Where they
    are not there: how they came about.
    """
    if (known := shapes.handle(tensor)) is not None:
        return known
    if tensor.is_meta:
        return None
    with _unseen():
        plain = elements(tensor)
        if plain.numel() > 1 and bool((plain == plain[0]).all()):
            return None
        digest = hashlib.sha256(raw_bytes(plain))
    digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    return digest.hexdigest()


_BITS = 16  # below which different batches may well have the same numbers


def is_short(tensor: torch.Tensor) -> bool:
    """Whether whole numbers are so few, or so small, that they may be equal by chance."""
    if tensor.is_floating_point() or tensor.is_complex() or tensor.is_meta or not tensor.numel():
        return False
    if shapes.handle(tensor) is not None:
        return False
    with _unseen():
        plain = elements(tensor).to(torch.int64)
        values = int(plain.max()) - int(plain.min()) + 1
        return plain.numel() * math.log2(values) < _BITS


def sketch(tensor: torch.Tensor) -> list[float]:
    """The norm of the elements, and sums of them with fixed signs: two tensors that differ by
    rounding alone have about the same ones. Elements a multiple of `_PERIOD` apart share a sign, so
    that large ones need little memory.
    """
    if shapes.handle(tensor) is not None or tensor.is_meta:
        return []
    with _unseen():
        plain = elements(tensor)
        whole = plain.numel() // _PERIOD * _PERIOD
        sums = torch.zeros(_PERIOD, dtype=torch.float64)
        sums += plain[:whole].view(-1, _PERIOD).sum(0, dtype=torch.float64)
        sums[: plain.numel() - whole] += plain[whole:]
        drawn = torch.Generator().manual_seed(0)
        signs = torch.randint(0, 2, (3, _PERIOD), generator=drawn).double() * 2 - 1
        norm = torch.linalg.vector_norm(plain if plain.element_size() >= 4 else plain.float())
        return [float(norm), *(float(one) for one in signs @ sums)]


def content(tensor: torch.Tensor):
    """The same for the same bytes, in one process; None where there are none."""
    if (known := shapes.handle(tensor)) is not None:
        return known.node, known.geometry
    if tensor.is_meta:  # still to be given memory
        return None
    with _unseen():
        if not tensor.untyped_storage().nbytes() or not tensor.numel():
            return None
        return hash(raw_bytes(elements(tensor)))


def take_hooks(program: Program) -> None:
    """What autograd has made of a gradient is what a hook sums, not what it makes of it. The
    backward of a collective of the forward makes a gradient of that of another value."""
    others: set[int] = set()  # gradients of what the model has computed
    for op in program.ops:
        for value, operands in _results(op) if _sums(op) or _passes(op) else ():
            passed = any(id(one) in others for one in operands)
            if passed and not _sums(op):
                others.add(id(value))
            elif not passed and _sums(op) and _made_by_hook(value, operands):
                operands[0].grad_of, value.grad_of = value.grad_of, None
                value.arrived_for = operands[0].grad_of
        others |= {id(one) for one in op.outs if one.grad_of is not None and trained(one) is None}


def summed(program: Program) -> dict[str, list[str]]:
    """By parameter: the axes along which the program sums its gradient, after the backward or in a
    hook; by messages, where it adds what other ranks have sent."""
    owners: dict[int, set[str]] = {}  # by value: the parameters whose gradients it consists of
    arrived: dict[int, list[str]] = {}  # by value: the axes along which it was sent
    found: dict[str, set[str]] = {}
    for op in program.ops:
        if op.name in ("recv", "collective_permute"):
            peer = op.attrs.get("peer")
            axes = program.axes_of(op) if peer is None else messages.along(program, peer)
            arrived |= {id(value): axes for value in op.outs}
        if op.name.startswith("aten.add") and len(op.operands()) == 2:
            for one, other in itertools.permutations(op.operands()):
                for name in owners.get(id(one), ()) if id(other) in arrived else ():
                    found.setdefault(name, set()).update(arrived[id(other)])
        reduces = _sums(op)
        for value, operands in _results(op) if reduces or _passes(op) else ():
            whose = set().union(*(owners.get(id(one), ()) for one in operands))
            for name in whose if reduces else ():
                found.setdefault(name, set()).update(program.axes_of(op))
            owners[id(value)] = whose
        for value in op.outs:
            if (parameter := trained(value)) is not None:
                owners.setdefault(id(value), set()).add(parameter.claims["name"])
    return {name: sorted(axes) for name, axes in found.items()}


def _made_by_hook(value: Value, operands: list[Value]) -> bool:
    """Whether the only operand could be the gradient as well: that of a parameter, of its shape."""
    alone = value.grad_of is not None and trained(value) is not None and len(operands) == 1
    return alone and operands[0].grad_of is None and operands[0].shape == value.shape


def trained(gradient: Value) -> Value | None:
    """The parameter whose gradient it is."""
    of = gradient.grad_of or gradient.arrived_for
    return of.root if of is not None and of.root.claims.get("role") == "param" else None


def summed_along(program: Program) -> dict[int, set[str]]:
    """By value: the axes along which it was summed on its way, as the gradient of anything."""
    found: dict[int, set[str]] = {}
    for op in program.ops:
        reduces = _sums(op)
        for value, operands in _results(op) if reduces or _passes(op) else ():
            axes = set().union(*(found.get(id(one), ()) for one in operands))
            if axes := axes.union(program.axes_of(op) if reduces else ()):
                found[id(value)] = axes
        # What is written in place, as by a fused optimizer, is what it was before.
        for value in op.outs:
            if before := found.get(id(value.alias_of)):
                found[id(value)] = before | found.get(id(value), set())
    return found


def exchanged(program: Program) -> list[str]:
    """The parameters that ranks send to each other: their copies may differ, and come together
    slowly."""
    whose: dict[int, set[str]] = {}
    found: set[str] = set()
    if not any(op.name in ("send", "collective_permute") for op in program.ops):
        return []
    for op in program.ops:
        operands = op.operands()
        names = {v.root.claims["name"] for v in operands if v.root.claims.get("role") == "param"}
        names |= set().union(*(whose.get(id(value), ()) for value in operands))
        if op.name in ("send", "collective_permute"):
            found |= names
        if _passes(op):
            whose |= {id(value): names for value in op.outs}
    return sorted(found)


def _results(op: Op) -> list[tuple[Value, list[Value]]]:
    """Each result with the operands that it is made of."""
    operands, each = op.operands(), len(op.outs)
    listed = op.name.startswith("aten._foreach_") or len(op.outs) == len(operands)
    if not listed:
        return [(value, operands) for value in op.outs]
    inner = len(operands) // each * each if each else 0
    more = operands[inner:]
    return [(value, operands[place:inner:each] + more) for place, value in enumerate(op.outs)]


def _sums(op: Op) -> bool:
    return op.name.rstrip("_") in ("all_reduce", "reduce_scatter", "reduce")


def _passes(op: Op) -> bool:
    parts = op.name.split(".")
    name = parts[1] if parts[0] == "aten" else parts[0]
    return name in _PASSES or (name.endswith("_") and name[:-1] in _PASSES_IN_PLACE)
