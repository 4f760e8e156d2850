"""The operations that are asked about."""

import functools

from ..samples import Case
from . import arithmetic, indexing, layout, layers, products, reductions, training


_PARTS = (arithmetic, products, reductions, layout, indexing, layers, training)


@functools.cache
def _named() -> dict[str, Case]:
    found = {case.name: case for part in _PARTS for case in part.CASES}
    assert len(found) == sum(len(part.CASES) for part in _PARTS), "two cases of one name"
    return found


def cases() -> list[Case]:
    """All cases, sorted by name."""
    return [case for _, case in sorted(_named().items())]


def by_name(name: str) -> Case:
    return _named()[name]
