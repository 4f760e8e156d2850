"""Literals that differ between ranks become arithmetic on the axis index."""

import pytest

from spmd_trace.torch import Axis, Mesh, Program
from spmd_trace.torch.ranks import rankdiff
from spmd_trace.torch.document import Op
from spmd_trace.torch.values import Value


def program(rank: int, *names_and_numbers) -> Program:
    made = Program(Mesh("m", [Axis("dp", 2, 4), Axis("tp", 4, 1)]), rank, "")
    for name, number in names_and_numbers:
        made.ops.append(Op(name, [number], [Value("i64", [])], {}))
    return made


def neighbours(*numbers) -> list[rankdiff.Neighbour]:
    one, last, other = numbers
    return [
        rankdiff.Neighbour("tp", 1, program(1, ("sub", one))),
        rankdiff.Neighbour("tp", 3, program(3, ("sub", last))),
        rankdiff.Neighbour("dp", 1, program(4, ("sub", other))),
    ]


def test_a_linear_number():
    traced = program(0, ("sub", 7))
    assert rankdiff.resolve(traced, neighbours(39, 103, 7)) == 1
    assert [op.name for op in traced.ops] == ["axis_index", "mul", "add", "sub"]
    assert traced.ops[0].outs[0].claims["type"] == {"dp": "R", "tp": "V"}
    assert traced.ops[1].ins[1] == 32 and traced.ops[2].ins[1] == 7
    assert traced.ops[3].ins == [traced.ops[2].outs[0]]


def test_equal_numbers_stay():
    traced = program(0, ("sub", 7))
    assert rankdiff.resolve(traced, neighbours(7, 7, 7)) == 0
    assert traced.ops[0].ins == [7]


def test_other_functions_of_the_rank_are_refused():
    with pytest.raises(NotImplementedError, match="not linear in the coordinate on tp"):
        rankdiff.resolve(program(0, ("sub", 0)), neighbours(1, 9, 0))


def test_operations_of_one_rank_are_marked():
    traced = program(0, ("exp", 1), ("neg", 1))
    other = rankdiff.Neighbour("tp", 1, program(1, ("neg", 1)))
    rankdiff.resolve(traced, [other])
    assert [op.rank_only for op in traced.ops] == [True, False]


def test_different_collectives_are_an_error():
    traced = program(0, ("all_reduce_", 1))
    with pytest.raises(RuntimeError, match="the rank at tp = 1 runs other collectives"):
        rankdiff.resolve(traced, [rankdiff.Neighbour("tp", 1, program(1, ("neg", 1)))])


def shaped(rank: int, *shapes) -> Program:
    made = Program(Mesh("m", [Axis("ep", 2, 1)]), rank, "")
    for shape in shapes:
        made.ops.append(Op("exp", [], [Value("f32", list(shape))], {"size": list(shape)}))
    return made


def test_sizes_of_tensors_become_symbols():
    traced = shaped(0, (3, 8), (6, 8), (3,), (5,), (9,))
    other = rankdiff.Neighbour("ep", 1, shaped(1, (4, 8), (8, 8), (4,), (6,), (9,)))
    assert rankdiff.resolve(traced, [other]) == 4
    shapes = [op.outs[0].shape for op in traced.ops]
    assert shapes == [["n0", 8], ["n0 * 2", 8], ["n0"], ["n1"], [9]]
    assert traced.ops[1].attrs == {"size": [{"sym": "n0 * 2"}, 8]}
    assert traced.symbols == {"n0": {"min": 0, "hint": 3}, "n1": {"min": 0, "hint": 5}}


def test_lists_of_other_lengths_are_no_sizes():
    traced, there = shaped(0, (3,)), shaped(1, (2,))
    traced.ops[0].ins, traced.ops[0].attrs = [1.0, 2.0, 3.0], {}
    there.ops[0].ins, there.ops[0].attrs = [1.0, 2.0], {}
    rankdiff.resolve(traced, [rankdiff.Neighbour("ep", 1, there)])
    assert traced.ops[0].outs[0].shape == [3] and not traced.symbols
