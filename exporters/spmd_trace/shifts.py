"""Messages between ranks as permutations: what every rank sends and receives, taken together.

One program of all ranks has a permutation where each rank that takes part sends along one axis by
the same distance. Ranks that send what they make of what they receive, as the stages of a pipeline
do, run programs of their own.
"""

import collections

from .ranks import coordinate


def rounds(logs: dict[int, list[dict]], axes: list) -> dict[int, list[dict]]:
    """By rank, the permutation of each of its messages; none where ranks run programs of their own.

    `logs`: in order, what a rank sends and receives (`way`, `peer`, `tag`), with the positions in
    its log of what it has received that a message needs (`needs`); `axes`: names, sizes and
    strides. A rank that does not take part in all permutations is left out.
    """
    if not matched(logs):
        return {}
    keys = {rank: _keys(rank, log, axes) for rank, log in logs.items()}
    if any(None in of_rank for of_rank in keys.values()):
        return {}  # some send along several axes at once
    pairs = _pairs(logs, keys, axes)
    if pairs is None:
        return {}
    if not all(_in_order(logs[rank], keys[rank]) for rank in logs):
        return {}
    numbers = {key: number for number, key in enumerate(pairs)}
    return {
        rank: [{"round": numbers[key], "axis": key[0], "perm": pairs[key]} for key in keys[rank]]
        for rank in logs
        if _takes_part(logs[rank], keys[rank], set(pairs))
    }


def matched(logs: dict[int, list[dict]]) -> bool:
    """Whether everything that is sent is received, in order."""
    sent, received = collections.defaultdict(list), collections.defaultdict(list)
    for rank, log in logs.items():
        for one in log:
            if one["way"] == "send":
                sent[rank, one["peer"]].append(one["tag"])
            else:
                received[one["peer"], rank].append(one["tag"])
    return sent == received


def _keys(rank: int, log: list[dict], axes: list) -> list:
    """For each message: the axis, by how many ranks, and the how-manieth of these; None if it is
    along none."""
    counts: collections.Counter = collections.Counter()
    found: list = []
    for one in log:
        source, target = (rank, one["peer"])[:: 1 if one["way"] == "send" else -1]
        moved = [
            (name, (target // stride - source // stride) % size)
            for name, size, stride in axes
            if coordinate(source, size, stride) != coordinate(target, size, stride)
        ]
        if len(moved) != 1:
            found.append(None)
            continue
        counts[one["way"], moved[0]] += 1
        found.append((*moved[0], counts[one["way"], moved[0]]))
    return found


def _pairs(logs: dict, keys: dict, axes: list) -> dict | None:
    """Source and target on the axis, by permutation; None where they differ from one line of ranks
    to another."""
    extents = {name: (size, stride) for name, size, stride in axes}
    found: dict = {}
    for rank, log in logs.items():
        for one, key in zip(log, keys[rank]):
            size, stride = extents[key[0]]
            place = coordinate(rank, size, stride)
            lines = found.setdefault(key, {})
            line = lines.setdefault(rank - place * stride, [])
            if one["way"] == "send":
                line.append([place, (place + key[1]) % size])
    result = {}
    for key, lines in found.items():
        size, _ = extents[key[0]]
        every = [sorted(line) for line in lines.values()]
        if any(line != every[0] for line in every) or len(lines) * size != len(logs):
            return None
        result[key] = every[0]
    return result


def _in_order(log: list[dict], keys: list) -> bool:
    """Whether each message needs only what has come in permutations before it."""
    sent = {key: place for place, (one, key) in enumerate(zip(log, keys)) if one["way"] == "send"}
    for place, one in enumerate(log):
        for needed in one.get("needs", []):
            if sent.get(keys[needed], -1) >= place:
                return False
    return True


def _takes_part(log: list[dict], keys: list, every: set) -> bool:
    """Whether a rank sends and receives in each permutation."""
    ways = {
        way: {key for one, key in zip(log, keys) if one["way"] == way} for way in ("send", "recv")
    }
    return ways["send"] == ways["recv"] == every
