"""The operations that are asked about."""

from ..samples import Case
from . import arithmetic, indexing, layout, layers, products, reductions, training


def cases() -> list[Case]:
    """All cases, by name."""
    parts = (arithmetic, products, reductions, layout, indexing, layers, training)
    found = {case.name: case for part in parts for case in part.CASES}
    assert len(found) == sum(len(part.CASES) for part in parts), "two cases of one name"
    return [found[name] for name in sorted(found)]
