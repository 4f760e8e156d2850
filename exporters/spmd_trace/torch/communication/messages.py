"""Messages from rank to rank: as they are called, and as permutations where all ranks make the same
calls."""

import collections
import dataclasses

import torch
import torch.distributed as dist

from ..document import Op, Program


def send(recorder, given: dict, group) -> None:
    words = {"peer": dist.get_global_rank(group, given["dst"]), "tag": given["tag"]}
    for tensor in given["tensors"]:
        recorder.add(Op("send", recorder.resolve([tensor]), [], dict(words)))


def receive(recorder, given: dict, group) -> None:
    if "src" not in given:
        remedy = "say from which rank it comes"
        return recorder.refuse("a message from any rank", remedy, [], given["tensors"])
    words = {"peer": dist.get_global_rank(group, given["src"]), "tag": given["tag"]}
    for tensor in given["tensors"]:
        op = Op("recv", [], [recorder.values.define(tensor, None, written=True)], dict(words))
        op.outs[0].requires_grad = False
        recorder.add(op)
        recorder.received(tensor, op.outs[0])


class Unmatched(NotImplementedError):
    """What a rank sends and receives is not what it did when all ranks ran."""


def log(program: Program) -> list[dict]:
    """What is sent and received, in order; of what is sent, what it is made from."""
    found: list[dict] = []
    if not any(op.name in ("send", "recv") for op in program.ops):
        return found
    made_from: dict[int, frozenset[int]] = {}  # by value: the positions in the log of what it needs
    for op in program.ops:
        operands = op.operands()
        needs = frozenset().union(*(made_from.get(id(value), ()) for value in operands))
        if op.name in ("send", "recv"):
            if op.name == "recv":
                needs = frozenset([len(found)])
            place = program.locations.text(op.loc)
            more = {"place": place} | ({"needs": sorted(needs)} if op.name == "send" else {})
            found.append({"way": op.name, **op.attrs} | more)
        for value in op.outs:
            made_from[id(value)] = needs
    return found


def permute(program: Program, plan: list[dict]) -> None:
    """Makes a permutation of each message that is sent and the one that is received with it."""
    calls = [op for op in program.ops if op.name in ("send", "recv")]
    if len(calls) != len(plan):
        raise Unmatched("messages that depend on what other ranks have sent")
    ends: dict[int, dict[str, Op]] = {}
    for op, one in zip(calls, plan):
        ends.setdefault(one["round"], {})[op.name] = op
    words = {one["round"]: {key: one[key] for key in ("axis", "perm")} for one in plan}
    for number, both in ends.items():
        sent, received = both["send"], both["recv"]
        sent.name, sent.outs = "collective_permute", received.outs
        sent.attrs = words[number] | {"src": "V", "dst": "V"}
        program.ops.remove(received)


@dataclasses.dataclass
class Exchange:
    """An all_to_all in which this rank sends all that it has to one other rank."""

    name: str
    op: Op
    index: int  # of that rank, in the group


def exchanges(program: Program) -> list[Exchange]:
    found: list[Exchange] = []
    times: collections.Counter = collections.Counter()
    for op in program.ops:
        sent, got = op.attrs.get("in_splits"), op.attrs.get("out_splits")
        if op.name != "all_to_all" or not isinstance(sent, list) or not isinstance(got, list):
            continue
        if [sum(map(bool, counts)) for counts in (sent, got)] != [1, 1] or max(sent) != max(got):
            continue
        made = program.locations.text(op.loc)
        found.append(Exchange(f"exchange {made} {times[made]}", op, sent.index(max(sent))))
        times[made] += 1
    return found


def turn(program: Program, found: list[Exchange], turns: dict[str, dict[str, list[int]]]) -> None:
    """Makes permutations of those in which each rank sends to the one so many before it."""
    for one in found:
        axes = program.axes_of(one.op)
        size = len(one.op.attrs["in_splits"])
        first, step, back = turns.get(one.name, {}).get(axes[0], (1, 1, 0)) if axes else (1, 1, 0)
        if len(axes) != 1 or (first, step) != (0, 1):
            continue
        if size != next(axis.size for axis in program.mesh.axes if axis.name == axes[0]):
            continue
        perm = [[rank, (rank - back) % size] for rank in range(size)]
        one.op.name = "collective_permute"
        one.op.attrs = {"axis": axes[0], "perm": perm, "src": "V", "dst": "V"}


def along(program: Program, peer: int) -> list[str]:
    """The axes along which another rank lies elsewhere."""
    mesh = program.mesh
    return [
        axis.name
        for axis in mesh.axes
        if mesh.coordinate(axis.name, peer) != mesh.coordinate(axis.name, program.rank)
    ]


def fill(tensor: torch.Tensor) -> None:
    """Numbers in place of what nobody has sent."""
    with torch.no_grad():
        if tensor.is_floating_point():
            tensor.copy_(
                torch.linspace(-1, 1, max(tensor.numel(), 1))[: tensor.numel()].view(tensor.shape)
            )
        else:
            tensor.zero_()
