"""Sizes of groups that plain numbers were divided by: `rate / world` is a float like any other,
since floats do not ask what they are divided by.

What it was made of stands in the source. Where an operation takes a number, the expressions of its
line that name a size are computed once more, with sizes that remember whose they are: one that
gives just this number is where it comes from. Names that hold such numbers are followed to where
the function has assigned them.
"""

import ast
import functools
import inspect
import linecache
import math
import operator
import textwrap

from ..locations import position_in_code

_DEPTH = 3  # assignments that are followed
_OPERATORS = {ast.Mult: operator.mul, ast.Div: operator.truediv}


def sized(frame, number: float, size: type, real, world):
    """The number with the sizes in it, if the code that a frame runs says which they are.

    `size`: the class of numbers that remember; `real(number)` makes one of a plain number; `world`
    is that of all ranks.
    """
    if not math.isfinite(number) or not number:
        return None
    reader = _Reader(frame, size, real, world)
    for one in _expressions(frame.f_code, frame.f_lasti):
        found = reader.value(one, _DEPTH)
        # A rate that grows with the number of ranks is meant to: it makes no sum of an average.
        divides = isinstance(found, size) and bool(found.powers)
        divides = divides and all(power < 0 for power in found.powers.values())
        if divides and math.isclose(float(found), number, rel_tol=1e-12):
            return found
    return None


@functools.lru_cache(maxsize=4096)
def _expressions(code, at: int) -> tuple[ast.expr, ...]:
    """Those of the call or operation that runs, and what they are made of, the largest first."""
    first, last, start, end = where = position_in_code(code, at)
    if None in where:
        return ()
    lines = [linecache.getline(code.co_filename, number) for number in range(first, last + 1)]
    source = "".join(lines).encode()
    cut = len(lines[-1].encode()) - end
    text = source[start : len(source) - cut].decode(errors="replace")
    tree = _parsed(f"({text})") or _parsed(text)
    return tuple(one for one in ast.walk(tree) if isinstance(one, ast.expr)) if tree else ()


def _parsed(source: str) -> ast.AST | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return None


@functools.lru_cache(maxsize=256)
def _assigned(code) -> dict[str, ast.expr]:
    """What a function, or a file, has assigned to names once."""
    try:
        of = inspect.findsource if code.co_name == "<module>" else inspect.getsourcelines
        lines, _ = of(code)
    except (OSError, TypeError):
        return {}
    tree = _parsed(textwrap.dedent("".join(lines)))
    found: dict[str, list[ast.expr]] = {}
    for one in ast.walk(tree) if tree else ():
        if isinstance(one, ast.Assign) and [type(to) for to in one.targets] == [ast.Name]:
            found.setdefault(one.targets[0].id, []).append(one.value)
    return {name: values[0] for name, values in found.items() if len(values) == 1}


class _Reader:
    """Computes what an expression of a frame is, of names and numbers alone: it calls nothing."""

    def __init__(self, frame, size: type, real, world):
        self._frame, self._size, self._real, self._world = frame, size, real, world

    def value(self, one: ast.expr, depth: int):
        """Its value, with sizes that remember whose they are; None where that is not known."""
        if isinstance(one, ast.Constant):
            plain = isinstance(one.value, (int, float)) and not isinstance(one.value, bool)
            return self._real(one.value) if plain else None
        if isinstance(one, ast.Name):
            return self._named(one.id, depth)
        if isinstance(one, (ast.Attribute, ast.Subscript)):
            return self._number(self._held(one))
        if isinstance(one, ast.Call) and not one.args and not one.keywords:
            name = getattr(one.func, "attr", getattr(one.func, "id", None))
            return self._world if name == "get_world_size" else None
        if isinstance(one, ast.UnaryOp) and isinstance(one.op, ast.USub):
            inner = self.value(one.operand, depth)
            return None if inner is None else inner * -1
        if isinstance(one, ast.BinOp) and type(one.op) in _OPERATORS:
            left, right = self.value(one.left, depth), self.value(one.right, depth)
            if left is None or right is None or (isinstance(one.op, ast.Div) and not float(right)):
                return None
            return _OPERATORS[type(one.op)](left, right)
        return None

    def _named(self, name: str, depth: int):
        scope = self._frame.f_locals if name in self._frame.f_locals else self._frame.f_globals
        held = self._number(scope.get(name))
        if held is None or held.powers or not depth:
            return held
        if (made := _assigned(self._frame.f_code).get(name)) is None:
            return held
        found = self.value(made, depth - 1)
        same = found is not None and math.isclose(float(found), float(held), rel_tol=1e-12)
        return found if same else held

    def _held(self, one: ast.expr):
        """What an object, a list or a dictionary holds itself: a property would run code."""
        if isinstance(one, ast.Name):
            return self._frame.f_locals.get(one.id, self._frame.f_globals.get(one.id))
        if isinstance(one, ast.Attribute):
            of = self._held(one.value)
            return vars(of).get(one.attr) if hasattr(of, "__dict__") else None
        if isinstance(one, ast.Subscript) and isinstance(one.slice, ast.Constant):
            of = self._held(one.value)
            return of.get(one.slice.value) if type(of) is dict else None
        return None

    def _number(self, held):
        if isinstance(held, self._size):
            return held
        plain = isinstance(held, (int, float)) and not isinstance(held, bool)
        return self._real(held) if plain and math.isfinite(held) else None
