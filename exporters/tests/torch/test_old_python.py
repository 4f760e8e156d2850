"""Code objects of Python 3.10, which know lines and no columns."""

import sys
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from spmd_trace.torch import locations  # noqa: E402


def the_code(frame_of):
    """What 3.10 has of a code object."""
    code = frame_of.__code__
    return SimpleNamespace(
        co_name=code.co_name,
        co_lines=code.co_lines,
        co_filename=code.co_filename,
        co_firstlineno=code.co_firstlineno,
    )


def two_lines(x):
    y = x + 1
    return y


def test_lines_without_columns():
    code = the_code(two_lines)
    first = two_lines.__code__.co_firstlineno
    found = {
        locations.position_in_code(code, at)
        for start, end, line in code.co_lines()
        if line is not None
        for at in range(start, end, 2)
    }
    assert {(first + 1, None, None, None), (first + 2, None, None, None)} <= found
    for start, _, line in two_lines.__code__.co_lines():
        assert locations.position_in_code(two_lines.__code__, start)[0] == line
    assert locations.position_in_code(code, 10_000) == (None, None, None, None)


def test_names_without_classes():
    assert locations.qualified_name(the_code(two_lines)) == "two_lines"
    if sys.version_info >= (3, 11):
        own = locations.Locations.here.__code__
        assert locations.qualified_name(own) == "Locations.here"
