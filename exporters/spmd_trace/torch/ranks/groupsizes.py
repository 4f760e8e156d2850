"""Sizes of process groups as numbers that remember whose sizes they are.

A division of gradients by the number of replicas changes the data and not what they mean: in the
trace it is `scale` and not `div`. Which of the two a number is cannot be determined from its value,
so the sizes that a program asks its process groups for are followed through products and quotients.
"""

import contextlib
import fractions
import functools
import sys

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from .. import recorder as recording
from ..frameworks.cpu import replaced
from .written import sized

_Powers = dict[tuple[int, ...], int]  # of the sizes of groups, by their ranks


def _combined(left: _Powers, right: _Powers, sign: int) -> _Powers:
    powers = dict(left)
    for ranks, power in right.items():
        powers[ranks] = powers.get(ranks, 0) + sign * power
    return {ranks: power for ranks, power in powers.items() if power}


class _Size:
    """Arithmetic shared by whole and other sizes: a plain factor times powers of sizes."""

    plain: fractions.Fraction
    powers: _Powers

    def __mul__(self, other):
        return _product(self, other, 1)

    def __rmul__(self, other):
        return _product(self, other, 1)

    def __truediv__(self, other):
        return _product(self, other, -1)

    def __rtruediv__(self, other):
        parts = _parts(other)
        return NotImplemented if parts is None else _number(parts[0] / self.plain, self.powers, -1)


class RealSize(_Size, float):
    """A quotient of sizes."""


class WholeSize(_Size):
    """A size, or a product of sizes.

    It is no `int`, or `1.0 / size` would be a plain number; everywhere else it acts as one.
    """

    def __init__(self, value: fractions.Fraction):
        self.value = int(value)

    def __index__(self) -> int:
        return self.value

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.value)

    def __repr__(self) -> str:
        return repr(self.value)

    def __hash__(self) -> int:
        return hash(self.value)

    def __format__(self, form: str) -> str:
        return format(self.value, form)


class ScriptSize(_Size, int):
    """A size, or a product of sizes, as the script of a stranger has it: it may ask for an `int`.

    `2.0 * size` and `1.0 / size` are plain numbers: floats do not ask what the other one is.
    """

    def __new__(cls, value: fractions.Fraction):
        return super().__new__(cls, int(value))

    def __sub__(self, other):
        # A number of samples without one, as a variance without bias is divided by: what it stands
        # for is counted as before.
        if isinstance(other, int) and other == 1 and self.plain > 1:
            return _number(self.plain * (int(self) - 1) / int(self), self.powers, 1, ScriptSize)
        return int.__sub__(self, other)

    def __reduce__(self):
        return int, (int(self),)  # what is sent or saved is a number


def _as_int(name: str):
    def method(size: WholeSize, *others):
        others = [int(o) if isinstance(o, WholeSize) else o for o in others]
        return getattr(size.value, name)(*others)

    return method


_LIKE_INT = "eq ne lt le gt ge bool neg pos abs add radd sub rsub floordiv rfloordiv mod rmod"
_LIKE_INT += " divmod rdivmod pow rpow and rand or ror xor rxor lshift rlshift rshift rrshift"
for _name in _LIKE_INT.split():
    setattr(WholeSize, f"__{_name}__", _as_int(f"__{_name}__"))


def _parts(number) -> tuple[fractions.Fraction, _Powers] | None:
    if isinstance(number, _Size):
        return number.plain, number.powers
    if isinstance(number, (int, float)) and not isinstance(number, bool):
        return fractions.Fraction(number), {}
    return None


def _product(left: _Size, right, sign: int):
    parts = _parts(right)
    if parts is None:
        return NotImplemented
    plain = left.plain * parts[0] if sign > 0 else left.plain / parts[0]
    powers = _combined(left.powers, parts[1], sign)
    whole = sign > 0 and not isinstance(left, RealSize) and isinstance(right, (int, WholeSize))
    return _number(plain, powers, 1, type(left) if whole else RealSize)


def _number(plain: fractions.Fraction, powers: _Powers, sign: int, kind: type = RealSize):
    """plain * product of sizes ** (sign * power)."""
    powers = {ranks: sign * power for ranks, power in powers.items()}
    value = plain
    for ranks, power in powers.items():
        value *= fractions.Fraction(len(ranks)) ** power
    number = kind(value)
    number.plain, number.powers = plain, powers
    return number


def _of_plain(kind: type, number: float):
    return _number(fractions.Fraction(number), {}, 1, kind)


def _followed(size: int, ranks: tuple[int, ...], kind: type = WholeSize):
    """The size of a group; one rank is no axis."""
    return size if size <= 1 else _number(fractions.Fraction(1), {ranks: 1}, 1, kind)


def _ranks(group) -> tuple[int, ...]:
    return tuple(dist.get_process_group_ranks(group or dist.group.WORLD))


def expression(number: _Size, mesh, rank: int) -> str:
    """The sizes in a number as a product and quotient of axes."""
    above, below = [], []
    for ranks, power in number.powers.items():
        names = mesh.axes_of_group(list(ranks), rank)
        if names is None:
            raise NotImplementedError(f"the size of the irregular group {list(ranks)}")
        (above if power > 0 else below).extend(names * abs(power))
    top, bottom = "*".join(above) or "1", "*".join(below)
    if not bottom:
        return top
    return f"{top}/{bottom}" if len(below) == 1 else f"{top}/({bottom})"


def _write(recorder, tensor: torch.Tensor, number: _Size, in_place: bool) -> torch.Tensor:
    """Multiplies by a number made of sizes alone."""
    words = {"by": expression(number, recorder.program.mesh, recorder.program.rank)}
    if not in_place:
        with recorder.hidden():
            result = tensor * float(number)
        recorder.emit("scale", [tensor], [result], words)
        return result
    for part in recorder.pieces(tensor) or [tensor]:
        recorder.emit("scale_", [part], [part], words, mut=[0])
    with recorder.hidden():
        return tensor.mul_(float(number))


class Scale(torch.autograd.Function):
    """The product, whose derivative is scaled by the same sizes."""

    @staticmethod
    def forward(ctx, tensor, number, in_place):
        ctx.number = number
        if in_place:
            ctx.mark_dirty(tensor)
        recorder = recording.active()
        if recorder is not None:
            return _write(recorder, tensor, number, in_place)
        return tensor.mul_(float(number)) if in_place else tensor * float(number)

    @staticmethod
    def backward(ctx, gradient):
        recorder = recording.active()
        if recorder is None:
            return gradient * float(ctx.number), None, None
        return _write(recorder, gradient, ctx.number, False), None, None


def scaled(tensor: torch.Tensor, number, in_place: bool = False) -> torch.Tensor:
    """`tensor` times a number in which sizes may stand: `scale` by these, `mul` by the rest."""
    if not isinstance(number, _Size):
        return tensor.mul_(number) if in_place else tensor * number
    if number.plain != 1:
        plain = float(number.plain)
        tensor = tensor.mul_(plain) if in_place else tensor * plain
    if not number.powers:
        return tensor
    number = _number(fractions.Fraction(1), number.powers, 1)
    recorder = recording.active()
    if recorder is not None:
        recorder.functions.transparent.add(Scale)
        if not (torch.is_grad_enabled() and tensor.requires_grad):
            return _write(recorder, tensor, number, in_place)
    return Scale.apply(tensor, number, in_place)


def _operator(
    name: str,
    in_place: bool,
    inverse: bool,
    usable=lambda tensor, number: True,
    written=lambda number, frame: number,
):
    """`usable`: whether a product with a number can be recognised as one with its sizes; `written`
    gives a plain number the sizes that the code of a frame has made it of."""
    original = getattr(torch.Tensor, name)

    def method(tensor, other, *args, **kwargs):
        if type(other) is float:
            other = written(other, sys._getframe(1))
        if args or kwargs or not isinstance(other, _Size) or not tensor.is_floating_point():
            return original(tensor, other, *args, **kwargs)
        if not usable(tensor, other):
            plain = float(other) if isinstance(other, RealSize) else int(other)
            return original(tensor, plain)
        return scaled(tensor, 1 / other if inverse else other, in_place)

    return method


def _addition(name: str, usable, written):
    """Of a sum with a multiple of a tensor: the sizes in the factor scale the tensor."""
    original = getattr(torch.Tensor, name)

    def method(tensor, other, *args, **kwargs):
        alpha = kwargs.get("alpha")
        if type(alpha) is float:
            alpha = written(alpha, sys._getframe(1))
        if not isinstance(alpha, _Size) or args or not isinstance(other, torch.Tensor):
            return original(tensor, other, *args, **kwargs)
        divided = bool(alpha.powers) and all(power < 0 for power in alpha.powers.values())
        if not (divided and other.is_floating_point() and usable(other, alpha)):
            return original(tensor, other, alpha=float(alpha))
        by = _number(fractions.Fraction(1), alpha.powers, 1)
        return original(tensor, scaled(other, by), alpha=float(alpha.plain))

    return method


_ADDITIONS = ("add", "add_", "sub", "sub_")

_OPERATORS = {
    "mul": (False, False),
    "__mul__": (False, False),
    "__rmul__": (False, False),
    "mul_": (True, False),
    "__imul__": (True, False),
    "div": (False, True),
    "__truediv__": (False, True),
    "div_": (True, True),
    "__itruediv__": (True, True),
}


def axis_size(group) -> "int | WholeSize":
    """The size of a group as a number that remembers it."""
    return _followed(dist.get_world_size(group), _ranks(group))


def all_ranks(world: int) -> "int | ScriptSize":
    """The size of the group of all ranks, as the script of a stranger has it."""
    return _followed(world, tuple(range(world)), ScriptSize)


@contextlib.contextmanager
def followed(*modules: str):
    """Follows the sizes of groups that `modules` ask for into products with tensors.

    Modules are named by the beginnings of their names: those that scale by sizes. Torch takes
    nothing but plain numbers for the extents that other modules make of sizes.
    """

    def asked_by(frame) -> bool:
        return frame.f_globals["__name__"].startswith(modules)

    methods = {name: _operator(name, *how) for name, how in _OPERATORS.items()}
    with _remembered(asked_by, WholeSize), replaced(torch.Tensor, **methods):
        yield


# Modules of packages that ask for the number of ranks once, for scripts that ask them.
_ASK_FOR_SCRIPTS = ("accelerate.state",)


@contextlib.contextmanager
def followed_in_script(is_script):
    """Follows the sizes that the script itself asks for (`is_script(frame)`) into products, or that
    a package asks for in its place.

    Where the trace has no name for a size, a product with it is one with a number.
    """

    def asked_by(frame) -> bool:
        return is_script(frame) or frame.f_globals.get("__name__") in _ASK_FOR_SCRIPTS

    def usable(tensor: torch.Tensor, number: _Size) -> bool:
        recorder = recording.active()
        if recorder is None or isinstance(tensor, (DTensor, AsyncCollectiveTensor)):
            return False
        program = recorder.program
        return all(program.mesh.axes_of_group(list(of), program.rank) for of in number.powers)

    def written(number: float, frame):
        recorder = recording.active()
        if recorder is None or not is_script(frame):
            return number
        plain = functools.partial(_of_plain, RealSize)
        world = all_ranks(int(dist.get_world_size()) if dist.is_initialized() else 1)
        found = sized(frame, number, _Size, plain, world if isinstance(world, _Size) else None)
        return number if found is None else found

    methods = {name: _operator(name, *how, usable, written) for name, how in _OPERATORS.items()}
    methods |= {name: _addition(name, usable, written) for name in _ADDITIONS}
    with _remembered(asked_by, ScriptSize), replaced(torch.Tensor, **methods):
        yield


@contextlib.contextmanager
def _remembered(asked_by, kind: type):
    """Sizes of groups and of meshes are numbers that remember whose they are, for those who ask."""
    size, world, mesh_size = dist.ProcessGroup.size, dist.get_world_size, DeviceMesh.size

    def of_group(group):
        count = size(group)
        return _followed(count, _ranks(group), kind) if asked_by(sys._getframe(1)) else count

    def get_world_size(group=None):
        count = world(group)
        return _followed(count, _ranks(group), kind) if asked_by(sys._getframe(1)) else count

    def of_mesh(mesh, mesh_dim=None):
        count = mesh_size(mesh, mesh_dim)
        if not asked_by(sys._getframe(1)) or mesh.get_coordinate() is None:
            return count
        if mesh_dim is None:
            return _followed(count, tuple(sorted(mesh.mesh.flatten().tolist())), kind)
        return _followed(count, _ranks(mesh.get_group(mesh_dim)), kind)

    with (
        replaced(dist.ProcessGroup, size=of_group),
        replaced(dist, get_world_size=get_world_size),
        replaced(DeviceMesh, size=of_mesh),
    ):
        yield
