"""How values that nobody computes come about: the operation, its attributes and the fingerprints of
its operands.

Equal fingerprints are equal values. Different ones prove nothing, except where both values are
numbers drawn at random, or read, that go through the same operations: these differ. What a
collective gives all ranks of a group is the same there, whatever they began with, so a fingerprint
is one along an axis.
"""

import collections
import dataclasses
import hashlib

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ..values import elements, raw_bytes

# What leaves different numbers different; arguments besides tensors are numbers.
_INJECTIVE = set(
    "copy_ clone _to_copy mul mul_ div div_ add add_ sub sub_ neg neg_ erfinv erfinv_".split()
)
_INJECTIVE |= set(
    "clamp_ clamp cat stack _copy_from tanh tanh_ slice_copy lift_fresh_copy exp".split()
)
_CONSTANTS = set(
    "zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full".split()
)
_FILLS = {"zero_", "fill_"}
_SAME_FOR_ALL = _INJECTIVE - {"cat", "stack"} | {"abs", "sqrt", "rsqrt", "square", "pow"}
# What writes all of its operand and does not read it.
_OVERWRITE = _FILLS | set("copy_ normal_ uniform_ random_ exponential_ bernoulli_".split())
_UNCERTAIN = "?"  # begins what says nothing where it differs
_LARGEST = 1 << 22  # elements of which the bytes are read

Geometry = tuple  # offset, shape, strides and type of a tensor in its storage


@dataclasses.dataclass(eq=False, slots=True)
class Node:
    """What made the content of one storage."""

    name: str  # the operation, and what is the same for like operations
    words: str  # what else it depends on
    operands: tuple  # of nodes with geometries
    drawn: bool = False  # each element is another number
    constant: bool = False  # all elements are one number
    unknown: bool = False
    group: tuple[int, ...] = ()  # ranks of a collective
    which: str = ""  # the call among those of its group, and for what is not shared the rank


@dataclasses.dataclass(eq=False, slots=True)
class Handle:
    """The content of a tensor at one time."""

    node: Node
    geometry: Geometry

    def along_axes(self, mesh, rank: int) -> dict[str, str | None] | None:
        """By axis, a fingerprint as `spmd_trace.ranks` compares them; None where all elements are
        one number.
        """
        if self.node.constant:
            return None
        found = {}
        for axis in mesh.axes:
            if axis.size > 1:
                first = rank - rank // axis.stride % axis.size * axis.stride
                line = frozenset(range(first, first + axis.size * axis.stride, axis.stride))
                found[axis.name] = self._along(line)
        return found

    def _along(self, line: frozenset[int]) -> str:
        whole, outline = _digests(self.node, line)
        geometry = _digest(whole, *map(str, self.geometry))
        sure = self.node.drawn and not self.node.unknown
        return f"{outline}:{geometry}" if sure else _UNCERTAIN + geometry


def _digest(*words: str) -> str:
    return hashlib.blake2b("\0".join(words).encode(), digest_size=12).hexdigest()


# By the ranks of an axis and the node: the digest of its content, and that of its outline.
_KNOWN: dict[frozenset[int], dict[int, tuple[str, str]]] = collections.defaultdict(dict)
_KEPT: list[Node] = []  # what is known by its identity


def _digests(node: Node, line: frozenset[int]) -> tuple[str, str]:
    known = _KNOWN[line]
    waiting = [node]
    while waiting:
        one = waiting[-1]
        if id(one) in known:
            waiting.pop()
            continue
        shared = bool(one.group) and line <= set(one.group)
        below = [] if shared else [of for of, _ in one.operands]
        if missing := [of for of in below if id(of) not in known]:
            waiting += missing
            continue
        waiting.pop()
        _KEPT.append(one)
        if one.unknown:
            known[id(one)] = (_digest(str(id(one))), "")
        elif shared:
            known[id(one)] = (_digest(one.name, str(one.group), one.which), "")
        else:
            wholes = [known[id(of)][0] + str(how) for of, how in one.operands]
            outlines = [known[id(of)][1] + str(how[1:]) for of, how in one.operands]
            known[id(one)] = (_digest(one.name, one.words, *wholes), _digest(one.name, *outlines))
    return known[id(node)]


def geometry(tensor: torch.Tensor) -> Geometry:
    with torch._C.DisableTorchFunction():
        where = tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride())
        return (*where, str(tensor.dtype))


def _fills(tensor: torch.Tensor) -> bool:
    """Whether a tensor is all of its storage."""
    with torch._C.DisableTorchFunction():
        return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()


class Table:
    """The nodes of all storages whose content is not there, or came out of a collective."""

    def __init__(self) -> None:
        # A weak reference keeps the identity of a storage from being used again.
        self._nodes: dict[int, tuple[StorageWeakRef, Node, bool]] = {}
        # By storage, what was read of it at its last version, by geometry.
        self._read: dict[int, tuple[StorageWeakRef, int, dict[Geometry, Node]]] = {}
        self._calls: collections.Counter = collections.Counter()  # collectives, by group

    def find(self, tensor: torch.Tensor) -> Node | None:
        """What made the content of a tensor; None if it is there to be read."""
        found = self._entry(tensor)
        return found[1] if found is not None else None

    def is_missing(self, tensor: torch.Tensor) -> bool:
        """Whether what a tensor has in memory is not what the program would have there."""
        found = self._entry(tensor)
        return found is not None and found[2]

    def _entry(self, tensor: torch.Tensor) -> tuple[StorageWeakRef, Node, bool] | None:
        if not self._nodes:
            return None
        with torch._C.DisableTorchFunction():
            return self._nodes.get(tensor.untyped_storage()._cdata)

    def handle(self, tensor: torch.Tensor) -> Handle | None:
        node = self.find(tensor)
        return None if node is None else Handle(node, geometry(tensor))

    def put(self, tensor: torch.Tensor, node: Node, missing: bool) -> None:
        with torch._C.DisableTorchFunction():
            storage = tensor.untyped_storage()
            self._nodes[storage._cdata] = StorageWeakRef(storage), node, missing

    def sizes(self) -> int:
        """The bytes of all storages that still are there; forgets the others."""
        total = 0
        for key, (reference, _, missing) in list(self._nodes.items()):
            if reference.expired():
                del self._nodes[key]
                continue
            storage = torch.UntypedStorage._new_with_weak_ptr(reference.cdata)
            total += storage.nbytes() if storage is not None and missing else 0
        return total

    def __len__(self) -> int:
        return len(self._nodes)

    def operand(self, tensor: torch.Tensor) -> tuple[Node, Geometry]:
        """A tensor that an operation reads, as it is before."""
        node = self.find(tensor)
        return (self._leaf(tensor), ()) if node is None else (node, geometry(tensor))

    def _leaf(self, tensor: torch.Tensor) -> Node:
        """What is there to be read, which is read once."""
        with torch._C.DisableTorchFunction():
            storage, version = tensor.untyped_storage(), tensor._version
            known = self._read.get(storage._cdata)
            if known is None or known[0].expired() or known[1] != version:
                known = StorageWeakRef(storage), version, {}
                self._read[storage._cdata] = known
        place = geometry(tensor)
        if place not in known[2]:
            known[2][place] = _leaf(tensor)
        return known[2][place]

    def made(
        self, func, words: str, operands: list, result: list, written: list, missing: bool
    ) -> None:
        """Notes an operation. `operands`: what it reads, and first what it writes; `result`: what
        it has made.
        """
        name = func._schema.name.removeprefix("aten::")
        overwrites = name in _OVERWRITE and bool(written)  # its first operand is not read
        read = operands[1:] if overwrites else operands
        drawn = torch.Tag.nondeterministic_seeded in func.tags and "dropout" not in name
        drawn = drawn or (name in _INJECTIVE and bool(read) and all(one.drawn for one, _ in read))
        same = name in _SAME_FOR_ALL and bool(read) and all(one.constant for one, _ in read)
        same = same or name in _CONSTANTS or name in _FILLS
        outs = [*result, *written]
        each = (
            name.startswith("_foreach_") and len(outs) or 1
        )  # so many operations on members of lists
        inner = len(read) // each * each
        for place, tensor in enumerate(outs):
            more = read[place % each : inner : each] + read[inner:]
            whole = _fills(tensor)
            if not whole:
                before = self.find(tensor) or Node("empty", "", ())
                more.append((before, geometry(tensor)))
            node = Node(name, f"{words} {place // each}", tuple(more), constant=same and whole)
            node.drawn = drawn and (whole or more[-1][0].drawn)
            node.unknown = any(of.unknown for of, _ in more)
            self.put(tensor, node, missing)

    def collective(
        self, name: str, ranks: tuple[int, ...], shared: bool, rank: int, operands, written
    ) -> None:
        """Notes what a collective gives; `shared`: all ranks of the group get the same."""
        self._calls[ranks] += 1
        layout = str([one - ranks[0] for one in ranks])
        for place, (tensor, missing) in enumerate(written):
            own = "" if shared else f" of rank {rank}"
            node = Node(name, f"{layout} {place}", tuple(operands), group=ranks)
            node.which = f"{self._calls[ranks]}.{place}{own}"
            self.put(tensor, node, missing)


def _leaf(tensor: torch.Tensor) -> Node:
    """What is there to be read."""
    with torch.no_grad(), torch._C.DisableTorchFunction():
        if (
            tensor.numel() > _LARGEST
            or tensor.device.type != "cpu"
            or tensor.layout is not torch.strided
        ):
            return Node("outside", "", (), unknown=True)
        plain = elements(tensor)
        same = plain.numel() > 0 and bool((plain == plain[0]).all())
        digest = hashlib.blake2b(raw_bytes(plain), digest_size=12).hexdigest()
    words = f"{digest} {tuple(tensor.shape)} {tensor.dtype}"
    return Node("read", words, (), drawn=not same, constant=same)
