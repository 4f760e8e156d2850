"""What differs between ranks, as kinds of the values that a step starts from."""

from collections.abc import Collection

# Far above what the order of a sum does to numbers of 32 bits, far below what a step does.
_ROUNDING = 1e-5


def gradient_of(name: str) -> str:
    """How the gradient of a parameter is compared, as it is before a sum over ranks."""
    return f"gradient {name}"


def coordinate(rank: int, size: int, stride: int) -> int:
    """Where a rank is on an axis."""
    return rank // stride % size


def line_of(rank: int, size: int, stride: int) -> list[int]:
    """The ranks along an axis, in their order, of which this is one."""
    first = rank - coordinate(rank, size, stride) * stride
    return [first + place * stride for place in range(size)]


def compared(
    rank: int,
    rows: dict[int, list[dict]],
    axes: list,
    summed: dict[str, list[str]],
    apart: bool = False,
    exchanged: Collection[str] = (),
) -> dict:
    """Kinds by name and axis, the axes along which ranks have batches of their own, how the
    positions of the parts that they take grow along axes, or go round them, and along which they
    have taken parameters out of whole ones.

    `rows` are the digests of each rank, `axes` the mesh (names, sizes, strides), `summed` the axes
    along which the program sums the gradient of a parameter. A parameter that is equal on ranks is
    used by each of them (R) where its gradient is summed, and by all as one (I) elsewhere, and
    where ranks that have blocks of other parameters sum equal gradients of it. What has no gradient
    is either (R|I). What ranks had in common before the first step, and have no more,
    has drifted along the axis; a buffer is each rank's own then. What another rank lacks, such as
    its own expert, differs (`lacked`). `exchanged`: parameters that ranks send to each other, or
    bring together later, whose copies may drift apart. `apart`: ranks run programs of their own.
    """
    kinds: dict[str, dict[str, str]] = {}
    drifted: dict[str, list[str]] = {}
    buffers: dict[str, list[str]] = {}  # that have drifted
    steps: dict[str, dict[str, int]] = {}
    turns: dict[str, dict[str, list[int]]] = {}
    taken: dict[str, list[str]] = {}
    lacked: dict[str, list[str]] = {}  # by axis
    unsure: dict[str, list[str]] = {}  # by axis: parameters that may differ
    roles = {row["name"]: row["role"] for row in rows[rank]}
    for axis, size, stride in axes:
        line = line_of(rank, size, stride)
        others = [_along(rows[one], axis) for one in line if one in rows]
        if len(others) < min(size, 2):
            continue
        equal_ones = _equal(others) if size > 1 else {}
        positions = [place for place, one in enumerate(line) if one in rows]
        named = [_by_name(rows[line[one]], "place") for one in positions]
        for name, step in _even_steps(positions, named).items():
            steps.setdefault(name, {})[axis] = step
        if len(positions) == size:
            for name, turn in _turned(named).items():
                turns.setdefault(name, {})[axis] = turn
        parts = [_by_name(rows[line[one]], "taken") for one in positions]
        for name in _taken(positions, size, parts):
            taken.setdefault(name, []).append(axis)
        if size > 1:  # what another rank lacks differs
            lacked[axis] = _lacked(others, roles)
            equal_ones |= dict.fromkeys(lacked[axis], False)
            equal_ones |= dict.fromkeys(_by_moments(others, roles, equal_ones), True)
        for name in _by_chance(others, equal_ones) + _rounded(others, roles, equal_ones):
            del equal_ones[name]
        now = _compared([_by_name(one, "digest") for one in others])
        unsure[axis] = [name for name in _unsure(others) if name not in equal_ones]
        for name in _drifted(others, {True, None}) - set(exchanged):
            if not apart and equal_ones.get(name) is not False and _apart(name, others):
                drifted.setdefault(name, []).append(axis)
        for name in _drifted(others, {True, None}, "began"):
            if not apart and _apart(name, others):
                buffers.setdefault(name, []).append(axis)
        equal_ones |= {name: False for name in exchanged if now.get(name) is False}
        # Blocks may begin as one number, too, where the axis cuts other parameters.
        cuts = any(not equal and roles.get(name) == "param" for name, equal in equal_ones.items())
        if cuts:
            equal_ones |= {
                name: False for name in _drifted(others) if axis not in summed.get(name, [])
            }
        if not (unsure[axis] or lacked.get(axis) or apart):
            equal_ones |= dict.fromkeys(_constants(others, roles, equal_ones), True)
        for name, kind in _kinds(axis, equal_ones, roles, summed, cuts).items():
            kinds.setdefault(name, {})[axis] = kind

    shared_out = {axis for of in steps.values() for axis in of}
    data, whole = _batches(axes, kinds, roles, unsure, exchanged, summed, shared_out)
    found = {"kinds": kinds, "data": data, "whole": whole, "drifted": drifted, "steps": steps}
    found |= {"drifted_buffers": buffers, "turns": turns, "taken": taken, "lacked": lacked}
    return found


def _lacked(ranks: list[list[dict]], roles: dict) -> list[str]:
    """Parameters that are not there on all ranks, or not as often."""
    counts = [{name: len(of) for name, of in _by_name(one, "digest").items()} for one in ranks]
    params = [name for name, role in roles.items() if role == "param"]
    return [name for name in params if len({count.get(name) for count in counts}) != 1]


def _kinds(
    axis: str, equal_ones: dict[str, bool], roles: dict, summed: dict[str, list[str]], cuts: bool
) -> dict[str, str]:
    """By name: the kind along an axis of what is equal there or not. `cuts`: some parameter is
    not."""
    found: dict[str, str] = {}
    for name, equal in equal_ones.items():
        # Ranks that have blocks of one model may sum what is complete, and divide it.
        whole = cuts and equal_ones.get(gradient_of(name), False)
        used = "R" if axis in summed.get(name, []) and not whole else "I"
        same = used if roles.get(name) == "param" else "R|I"
        found[name] = same if equal else "V"
    return found


def _batches(
    axes: list,
    kinds: dict,
    roles: dict,
    unsure: dict,
    exchanged: Collection[str],
    summed: dict[str, list[str]],
    shared_out: set[str],
) -> tuple[list[str], dict[str, list[str]]]:
    """The axes along which ranks have batches of their own, and those along which a loss is equal
    although batches differ. `shared_out`: axes along which ranks take parts of one tensor."""

    def has(axis: str, role: str, kind: str) -> bool:
        return any(roles.get(name) == role and of.get(axis) == kind for name, of in kinds.items())

    # Where no parameter differs, batches should: whether they do is another question.
    def splits(axis: str) -> bool:
        return has(axis, "input", "V") or not (has(axis, "param", "V") or unsure.get(axis))

    # Where some parameters are used by all ranks as one, others are cut or see a part of the batch,
    # and the loss is equal, ranks share one model, and the parts are those of its sequences.
    def shares(axis: str) -> bool:
        losses = [of.get(axis) for name, of in kinds.items() if roles.get(name) == "loss"]
        one_loss = bool(losses) and set(losses) == {"R|I"}
        apart = has(axis, "input", "V") or axis in shared_out
        cut = has(axis, "param", "V") or (apart and has(axis, "param", "R"))
        return one_loss and cut and has(axis, "param", "I")

    data = [
        axis for axis, *_ in axes if has(axis, "param", "R") and splits(axis) and not shares(axis)
    ]
    for axis, *_ in axes:
        # Ranks that train models of their own, and bring them together, have losses of their own.
        if any(kinds.get(name, {}).get(axis) == "V" for name in exchanged) and has(
            axis, "input", "V"
        ):
            data += [] if axis in data else [axis]
        # So have ranks of which each trains all parameters for itself, and sums no gradient.
        losses = [of.get(axis) for name, of in kinds.items() if roles.get(name) == "loss"]
        shared = any(has(axis, "param", kind) for kind in ("R", "I")) or unsure.get(axis)
        shared = shared or any(axis in of for of in summed.values())
        if set(losses) == {"V"} and has(axis, "param", "V") and has(axis, "input", "V"):
            data += [] if axis in data or shared else [axis]
    # A loss that is equal although batches differ is one of all batches.
    whole = {
        name: [axis for axis in of if of[axis] == "R|I" and has(axis, "input", "V")]
        for name, of in kinds.items()
        if roles.get(name) == "loss"
    }
    return data, whole


def _taken(ranks: list[int], size: int, named: list[dict[str, list]]) -> list[str]:
    """Parameters of which each rank of an axis has taken the blocks in its place out of one
    whole."""
    found: list[str] = []
    for name, ((*whole, pieces, _), *_) in named[0].items():
        there = [one.get(name, [None])[0] for one in named]
        if pieces == size and there == [[*whole, pieces, rank] for rank in ranks]:
            found.append(name)
    return found


def _even_steps(ranks: list[int], named: list[dict[str, list]]) -> dict[str, int]:
    """By name: how much greater the place of a part is on each rank than on the one before it, on
    all of them."""
    found: dict[str, int] = {}
    for name, (first,) in named[0].items():
        there = [one.get(name, [None])[0] for one in named]
        if len(ranks) < 2 or None in there:
            continue
        step, rest = divmod(there[1] - first, ranks[1] - ranks[0])
        if not rest and all(
            place == first + step * (rank - ranks[0]) for rank, place in zip(ranks, there)
        ):
            found[name] = step
    return found


def _turned(named: list[dict[str, list]]) -> dict[str, list[int]]:
    """By name, of parts that the ranks of an axis have in another order than their own, each that
    of the rank so many before it: where the first part is, how far apart they are, how many."""
    found: dict[str, list[int]] = {}
    size = len(named)
    for name in named[0] if size > 1 else ():
        there = [one.get(name, [None])[0] for one in named]
        if None in there:
            continue
        first, rest = min(there), max(there) - min(there)
        step = rest // (size - 1)
        back = there.index(first)
        turned = [first + step * ((rank - back) % size) for rank in range(size)]
        if step and back and there == turned:
            found[name] = [first, step, back]
    return found


def _equal(ranks: list[list[dict]]) -> dict[str, bool]:
    """By name, whether its values are the same on some ranks; what nobody can know is left out.

    A parameter is what it was before the first step: one that has drifted apart since then should
    not have. Where it began as one number everywhere, it is equal if it still is.
    """
    began = _compared([_by_name(rows, "initial") for rows in ranks])
    now = _compared([_by_name(rows, "digest") for rows in ranks])
    drifted = _drifted(ranks)
    return {name: equal for name, equal in (now | began).items() if name not in drifted}


def _by_moments(ranks: list[list[dict]], roles: dict, equal: dict[str, bool]) -> list[str]:
    """Parameters that are one number everywhere on all ranks, but whose moments are equal ones of
    several numbers: blocks would have had other gradients."""
    digests = [_by_name(rows, "digest") for rows in ranks]
    elements = _by_name(ranks[0], "elements")
    found = []
    for name, role in roles.items():
        one_number = all(of.get(name) == [None] for of in digests)
        if role != "param" or name in equal or not one_number:
            continue
        moments = [
            same
            for one, same in equal.items()
            if one.startswith(f"{name}.") and elements.get(one, [1])[0] > 1
        ]
        if moments and all(moments):
            found.append(name)
    return found


def _by_chance(ranks: list[list[dict]], equal: dict[str, bool]) -> list[str]:
    """Inputs that are a few whole numbers, such as labels, and that differ where the script reads
    them another time: that they are equal once says nothing."""
    differ = {_read_at(name) for name, same in equal.items() if not same}
    short = _by_name(ranks[0], "short")
    return [
        name
        for name, (is_short, *_) in short.items()
        if is_short and equal.get(name) and _read_at(name) in differ
    ]


def _read_at(name: str) -> str:
    """The place of an input, which is numbered there."""
    return name.rpartition(" ")[0]


def _rounded(ranks: list[list[dict]], roles: dict, equal: dict[str, bool]) -> list[str]:
    """What ranks computed in another order, as a matrix by another layout: it may be one value."""
    sketches = _by_name(ranks[0], "sketch")
    return [
        name
        for name, same in equal.items()
        if not same and roles.get(name) != "param" and sketches.get(name, [[]])[0]
        and not _apart(name, ranks)
    ]  # fmt: skip


def _constants(ranks: list[list[dict]], roles: dict, equal: dict[str, bool]) -> list[str]:
    """Parameters that are one number everywhere on all ranks, in modules of which each rank has all
    others whole: these are no blocks either."""
    whole: dict[str, bool] = {}  # by module, whether all that is known of its parameters is equal
    for name, same in equal.items():
        for module in _modules(name) if roles.get(name) == "param" else ():
            whole[module] = whole.get(module, True) and same
    digests = [_by_name(rows, "digest") for rows in ranks]
    return [
        name
        for name, role in roles.items()
        if role == "param"
        and name not in equal
        and next((whole[module] for module in _modules(name) if module in whole), False)
        and all(of.get(name) == [None] for of in digests)
        and not _apart(name, ranks)
    ]


def _modules(name: str) -> list[str]:
    """The modules that a parameter is in, the innermost first."""
    words = name.split(".")[:-1]
    return [".".join(words[:count]) for count in range(len(words), -1, -1)]


def _drifted(ranks: list[list[dict]], began_as=frozenset({None}), key="initial") -> set[str]:
    """Parameters that differ now, and began equal (True), or as one number on all ranks (None)."""
    began = _compared([_by_name(rows, key) for rows in ranks])
    now = _compared([_by_name(rows, "digest") for rows in ranks])
    names = _by_name(ranks[0], key)
    return {name for name in names if began.get(name) in began_as and now.get(name) is False}


def _unsure(ranks: list[list[dict]]) -> list[str]:
    """Parameters without values of which it is not known whether they differ."""
    named = [_by_name(rows, "initial") for rows in ranks]
    known = _compared(named)
    return [
        name
        for name, digests in named[0].items()
        if name not in known and any(str(one).startswith("?") for one in digests)
    ]


def _apart(name: str, ranks: list[list[dict]]) -> bool:
    """Whether what ranks have under a name are more than roundings of one value."""
    named = [_by_name(rows, "sketch").get(name, []) for rows in ranks]
    pairs = [pair for other in named for pair in zip(named[0], other)]
    return any(beyond_rounding([*pair]) for pair in pairs)


def beyond_rounding(sketches: list[list[float]]) -> bool:
    """Whether sketches of tensors, one of each rank, are not those of one value that was rounded
    in several ways."""
    return any(
        abs(a - b) > _ROUNDING * max(sketches[0][0], other[0])
        for other in sketches[1:]
        for a, b in zip(sketches[0], other)
    )


def _compared(named: list[dict[str, list]]) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for name, digests in named[0].items():
        others = [one.get(name) for one in named[1:]]
        if any(other is None or len(other) != len(digests) for other in others):
            continue
        if any(other != digests for other in others):
            pairs = [pair for other in others for pair in zip(digests, other)]
            if any(_differs(*pair) for pair in pairs):
                found[name] = False
        elif None not in digests:
            found[name] = True
    return found


def _along(rows: list[dict], axis: str) -> list[dict]:
    """What is compared along an axis: of values that are not there, a fingerprint for each."""
    return [
        {key: one.get(axis) if isinstance(one, dict) else one for key, one in row.items()}
        for row in rows
    ]


def _differs(one: str | None, other: str | None) -> bool | None:
    """Whether values differ, by their digests; None: that is not known.

    What is not there has a fingerprint that ends in `:` and a digest, if it is known to be another
    value where that is another digest, and begins with `?` else (`torch/script/fingerprints.py`).
    """
    if one == other:
        return False
    texts = [text for text in (one, other) if text is not None]
    if any(text.startswith("?") for text in texts):
        return None
    outlines = {text.rpartition(":")[0] for text in texts}
    return True if len(outlines) == 1 else None


def _by_name(rows: list[dict], key: str) -> dict[str, list]:
    names: dict[str, list] = {}
    for row in rows:
        if key in row:
            names.setdefault(row["name"], []).append(row[key])
    return names
