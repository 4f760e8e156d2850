"""Which placements are asked about: all of few, a chosen part of many.

Of an operation with many operands most assignments are nonsense that any checker refuses. Those
that tell something are the ones that DTensor keeps, found by following its own suggestions, and
their neighbours, in which one operand is placed differently.
"""

import itertools
import random
from collections.abc import Callable

ALL = 36  # so many assignments are all asked
KEPT, OTHERS = 15, 9  # at most so many of each kind are recorded
TWO_AXES = 4  # of each kind again

Assignment = tuple[tuple[str, ...], ...]  # per operand a placement per axis


def one_axis(options: list[list[str]], suggest: Callable) -> list[Assignment]:
    """Assignments on one axis; `suggest` gives what DTensor would have instead, None if nothing."""
    total = 1
    for words in options:
        total *= len(words)
    if total <= ALL:
        asked = list(itertools.product(*options))
        return [tuple((word,) for word in words) for words in asked]
    seeds = list(_seeds(options))
    kept, others = _sorted_out(seeds, suggest)
    near = [
        (*words[:i], other, *words[i + 1 :])
        for words in kept
        for i, choice in enumerate(options)
        for other in choice
        if other != words[i]
    ]
    chooser = random.Random(str(options))
    kept_near, others_near = _sorted_out(_some(near, 4 * OTHERS, chooser), suggest)
    kept = _some(sorted({*kept, *kept_near}), KEPT, chooser)
    others = _some(sorted({*others, *others_near} - {*kept}), OTHERS, chooser)
    return [tuple((word,) for word in words) for words in sorted({*kept, *others})]


def _seeds(options: list[list[str]]):
    """All operands with one placement where they can be, and those where one differs from R."""
    words = sorted({word for choice in options for word in choice})
    for word in words:
        yield tuple(word if word in choice else "R" for choice in options)
    for i, choice in enumerate(options):
        for word in choice:
            yield tuple(word if i == j else "R" for j in range(len(options)))


def _sorted_out(asked, suggest: Callable) -> tuple[list, list]:
    """Those that are kept, suggestions included, and those that are not."""
    kept, others = {}, {}
    for words in asked:
        wanted = suggest(words)
        if wanted is None or wanted != words:
            others[words] = None
        if wanted is not None and suggest(wanted) == wanted:
            kept[wanted] = None
    return list(kept), list(others)


def two_axes(kept: list[Assignment], others: list[Assignment], name: str) -> list[Assignment]:
    """Pairs of assignments on one axis: both kept, or one of them not."""
    chooser = random.Random(name)
    pairs = set()
    for first, second in ((kept, kept), (kept, others), (others, kept)):
        both = [(a, b) for a in first for b in second]
        for a, b in _some(both, TWO_AXES, chooser):
            pairs.add(tuple((*x, *y) for x, y in zip(a, b)))
    return sorted(pairs)


def _some(items: list, count: int, chooser: random.Random) -> list:
    """At most `count` of the items, in their order."""
    if len(items) <= count:
        return items
    return [items[i] for i in sorted(chooser.sample(range(len(items)), count))]
