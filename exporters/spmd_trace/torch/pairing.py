"""Which forward operation a backward operation belongs to, by autograd sequence numbers.

Autograd numbers a node before the forward operation runs and shows the running node in backward.
The gradient of a forward value is what reaches its node, seen by a hook before the node runs.
"""

import weakref

import torch

from .document import Op
from .values import Value

# Nodes that autograd makes for a write to a view, right after the node of the write itself.
_AFTER_WRITE = {"torch::autograd::CopySlices", "AsStridedBackward0"}
_VIEW_NAMES = ("aten.t.", "aten.view.", "aten.transpose.", "aten.expand.", "aten.alias.")


class Pairing:
    """Forward operations by sequence number, and node outputs by (number, position)."""

    def __init__(self) -> None:
        self.forward: dict[int, list[Op]] = {}
        self.values: dict[tuple[int, int], Value] = {}
        self.first_use: dict[Value, Op] = {}
        self.parameters: dict[int, Value] = {}
        # By identity: parameters whose gradient has not been seen in this backward.
        self.unmarked: dict[int, torch.Tensor] = {}
        self.root: Op | None = None
        # By identity: leaves, and what they were when the forward used them last. A wrapper may
        # have given them other memory since.
        self.leaves: dict[int, tuple[weakref.ref, Value]] = {}

    @staticmethod
    def newest_number() -> int:
        return torch.autograd._get_sequence_nr() - 1

    def note_forward(self, op: Op, in_function: bool) -> None:
        """Files a forward operation under the node that autograd has just made for it."""
        number = self.newest_number()
        if in_function:
            self.forward.setdefault(number, []).append(op)
        elif number not in self.forward:
            self.forward[number] = [op]

    def note_folded(self, op: Op, first: int) -> None:
        """Files an operation that stands for several under all nodes made since `first`."""
        for number in range(first, self.newest_number() + 1):
            self.forward[number] = [op]

    def note_use(self, op: Op, inputs: list[Value]) -> None:
        """Remembers where a declared value is first used: its accumulation belongs there."""
        for value in inputs:
            if "role" in value.claims:
                self.first_use.setdefault(value, op)

    def note_operand(self, tensor: torch.Tensor, value: Value) -> None:
        """Remembers which node made a value, seen when the value is used."""
        if tensor.requires_grad and tensor.grad_fn is not None:
            key = (tensor.grad_fn._sequence_nr(), tensor.output_nr)
            self.values.setdefault(key, value)

    def note_leaf(self, tensor: torch.Tensor, value: Value) -> None:
        """Remembers what a leaf was when the forward used it."""
        if tensor.requires_grad and tensor.grad_fn is None:
            self.leaves[id(tensor)] = weakref.ref(tensor), value

    def running_forward(self) -> Op | None:
        """The forward operation whose backward is running now."""
        node = torch._C._current_autograd_node()
        if node is None:
            return self.root
        if _is_accumulation(node):
            return self.first_use.get(self.parameters.get(id(node.variable)))
        number = node._sequence_nr()
        if node.name() in _AFTER_WRITE and number not in self.forward:
            number = max((n for n in self.forward if n < number), default=number)
        ops = self.forward.get(number, [])
        working = [op for op in ops if op.outs and not op.name.startswith(_VIEW_NAMES)]
        return (working or [op for op in ops if op.outs] or [None])[-1]

    def watch(self, root, find) -> None:
        """Hooks every node that `root` depends on; `find` gives the known value of a tensor."""
        seen, queue = set(), [root]
        while queue:
            node = queue.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if _is_accumulation(node):
                self.parameters[id(node.variable)] = find(node.variable)
                self.unmarked[id(node.variable)] = node.variable
            node.register_prehook(self._hook(node, find))
            queue += [below for below, _ in node.next_functions]

    def _hook(self, node, find):
        def hook(gradients):
            for position, gradient in enumerate(gradients):
                if gradient is None:
                    continue
                if _is_accumulation(node):
                    leaf, forward = self.leaves.get(id(node.variable), (lambda: None, None))
                    if leaf() is not node.variable or forward.shape != list(gradient.shape):
                        forward = find(node.variable)
                else:
                    forward = self.values.get((node._sequence_nr(), position))
                value = find(gradient)
                if forward and value and value.grad_of is None and value.floating:
                    if value.shape == forward.shape:
                        value.grad_of = forward
                        if _is_accumulation(node):
                            self.unmarked.pop(id(node.variable), None)

        return hook


def _is_accumulation(node) -> bool:
    return hasattr(node, "variable")
