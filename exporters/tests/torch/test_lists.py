"""Collectives over lists of tensors, of one rank alone, of objects, and messages between ranks."""

import json

import jsonschema
import pytest

import spmd_trace.torch
import torch
import torch.distributed as dist
from spmd_trace import shifts
from spmd_trace.torch import Axis, Mesh, Recorder
from spmd_trace.torch.communication import messages
from spmd_trace.torch.frameworks import cpu
from traces import schema

_RANKS = 4


def record(program, *inputs, ranks=_RANKS, change=lambda recorder: None) -> list[dict]:
    with cpu.fake_ranks(0, ranks):
        recorder = Recorder(Mesh("m", [Axis("dp", ranks, 1)]))
        for place, tensor in enumerate(inputs):
            recorder.declare(tensor, "input", f"x{place}", type={"dp": "V"} if ranks > 1 else {})
        with recorder.recording():
            program(*inputs)
        change(recorder)
    trace = json.loads(spmd_trace.torch.dumps(recorder.program))
    jsonschema.Draft202012Validator(schema()).validate(trace)
    return trace["ops"]


def names(ops) -> list[str]:
    return [op["op"].removeprefix("aten.").split(".")[0] for op in ops]


def like(x):
    return [torch.empty_like(x) for _ in range(_RANKS)]


_KEPT = torch.arange(6.0).view(2, 3)


def test_a_list_is_the_rows_of_what_is_gathered():
    def program(x):
        whole = like(x)
        dist.all_gather(whole, x)
        torch.cat(whole)

    ops = record(program, _KEPT.clone())
    assert names(ops) == ["empty_like"] * 4 + ["all_gather", "split_with_sizes"] + ["copy_"] * 4 + [
        "cat"
    ]
    gather, split = ops[4], ops[5]
    assert gather["attrs"] == {"group": "default_pg", "dim": 0} and gather["in"] == ["%0"]
    assert gather["out"][0]["shape"] == [8, 3] and split["attrs"] == {"split_sizes": [2, 2, 2, 2]}
    assert ops[-1]["in"] == [[op["out"][0]["id"] for op in ops[6:10]]]


def test_numbers_are_gathered_as_rows():
    ops = record(lambda x: dist.all_gather(like(x), x), torch.tensor(1.5))
    (gather,) = [op for op in ops if op["op"] == "all_gather"]
    assert gather["out"][0]["shape"] == [4] and "copy_" in names(ops)


def test_lists_are_joined_before_they_are_scattered_or_exchanged():
    def program(x):
        dist.reduce_scatter(torch.empty_like(x), [x.clone() for _ in range(_RANKS)])
        dist.all_to_all(like(x), [x.clone() for _ in range(_RANKS)])

    ops = record(program, _KEPT.clone())
    scatter, exchange = [op for op in ops if op["op"] in ("reduce_scatter", "all_to_all")]
    assert scatter["attrs"] == {"group": "default_pg", "op": "sum", "dim": 0}
    assert exchange["attrs"] == {"group": "default_pg", "split_dim": 0, "concat_dim": 0}
    joined = {op["out"][0]["id"] for op in ops if op["op"] == "aten.cat.default"}
    assert {scatter["in"][0], exchange["in"][0]} == joined


def test_blocks_of_different_sizes_are_stated():
    def program(x):
        sizes = [2, 1, 3, 2]
        blocks = [torch.ones(size, 3) for size in sizes]
        dist.all_to_all([torch.empty(2, 3) for _ in sizes], blocks)

    (exchange,) = [op for op in record(program, _KEPT.clone()) if op["op"] == "all_to_all"]
    assert exchange["attrs"]["in_splits"] == [2, 1, 3, 2]
    assert exchange["attrs"]["out_splits"] == [2, 2, 2, 2]


def test_one_rank_has_what_is_gathered_to_it():
    ops = record(lambda x: dist.gather(x, like(x), dst=0), _KEPT.clone())
    gather, own = [op for op in ops if op["op"] in ("all_gather", "reinterpret")]
    assert own["in"] == [gather["out"][0]["id"]]
    assert own["attrs"] == {"axis": "dp", "src": "R", "dst": "V", "expert": True}


def test_what_one_rank_scatters_is_sent_to_all_and_cut():
    def program(x):
        dist.scatter(torch.empty_like(x), [x.clone() for _ in range(_RANKS)], src=0)

    ops = record(program, _KEPT.clone())
    sent, cut = [op for op in ops if op["op"] in ("broadcast_", "convert")]
    assert sent["attrs"]["root"] == 0 and sent["out"][0]["shape"] == [8, 3]
    assert cut["attrs"] == {"axis": "dp", "src": "R", "dst": "S(0)"}


def test_a_rank_that_is_alone_copies():
    def program(x):
        whole = torch.empty_like(x)
        dist.all_gather_into_tensor(whole, x)
        dist.all_gather([torch.empty_like(x)], x)

    assert names(record(program, _KEPT.clone(), ranks=1)).count("copy_") == 2


def exchange(x):
    """To the next rank, from the one before."""
    buffer = torch.zeros_like(x)
    calls = [dist.P2POp(dist.isend, x, 1), dist.P2POp(dist.irecv, buffer, 3)]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    return buffer * 2


_RING = {
    rank: [
        {"way": "send", "peer": (rank + 1) % 4, "tag": 0, "needs": []},
        {"way": "recv", "peer": (rank - 1) % 4, "tag": 0},
    ]
    for rank in range(4)
}
_AXES = [["dp", 4, 1]]


def test_messages_of_a_ring_are_one_permutation():
    def permuted(recorder):
        log = messages.log(recorder.program)
        assert [(one["way"], one["peer"]) for one in log] == [("send", 1), ("recv", 3)]
        messages.permute(recorder.program, shifts.rounds(_RING, _AXES)[0])

    ops = record(exchange, _KEPT.clone(), change=permuted)
    assert names(ops) == ["zeros_like", "collective_permute", "mul"]
    ring = [[0, 1], [1, 2], [2, 3], [3, 0]]
    assert ops[1]["attrs"] == {"axis": "dp", "perm": ring, "src": "V", "dst": "V"}
    assert ops[1]["in"] == ["%0"] and ops[2]["in"][0] == ops[1]["out"][0]["id"]


def test_messages_alone_are_what_one_rank_calls():
    ops = record(exchange, _KEPT.clone())
    assert names(ops) == ["zeros_like", "send", "recv", "mul"]
    assert ops[1]["attrs"] == {"peer": 1, "tag": 0} and ops[2]["attrs"] == {"peer": 3, "tag": 0}


def _line(rank: int) -> list[dict]:
    """To both neighbours, without wrapping around."""
    there = [peer for peer in (rank - 1, rank + 1) if 0 <= peer < 4]
    return [{"way": way, "peer": peer, "tag": 0} for peer in there for way in ("send", "recv")]


def test_ranks_in_the_middle_take_part_in_all_permutations_of_a_line():
    plans = shifts.rounds({rank: _line(rank) for rank in range(4)}, _AXES)
    assert sorted(plans) == [1, 2]
    assert [one["perm"] for one in plans[1]][::2] == [
        [[1, 0], [2, 1], [3, 2]],
        [[0, 1], [1, 2], [2, 3]],
    ]


def _stage(rank: int) -> list[dict]:
    log = [{"way": "recv", "peer": rank - 1, "tag": 0}] if rank else []
    return log + (
        [{"way": "send", "peer": rank + 1, "tag": 0, "needs": [0] if rank else []}]
        if rank < 3
        else []
    )


@pytest.mark.parametrize(
    "logs",
    [
        {rank: _stage(rank) for rank in range(4)},  # they send what they make of what they receive
        {**_RING, 0: _RING[0][:1]},  # not all that is sent is received
        {0: [{"way": "send", "peer": 1, "tag": 0}], 1: [{"way": "recv", "peer": 0, "tag": 0}]},
    ],
)
def test_ranks_that_run_programs_of_their_own(logs):
    assert shifts.rounds(logs, [["dp", len(logs), 1]]) == {}


def test_permutations_run_along_one_axis_of_several():
    def log(rank):
        pair, place = rank // 2 * 2, rank % 2
        other = pair + 1 - place
        return [{"way": way, "peer": other, "tag": 0} for way in ("send", "recv")]

    plans = shifts.rounds({rank: log(rank) for rank in range(4)}, [["dp", 2, 2], ["cp", 2, 1]])
    assert plans[3][0] == {"round": 0, "axis": "cp", "perm": [[0, 1], [1, 0]]}
