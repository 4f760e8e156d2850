"""Meshes from groups of ranks, and kinds from what the ranks have."""

import types

import pytest

from spmd_trace.ranks import compared
from spmd_trace.torch.document import Op
from spmd_trace.torch.script import axes, evidence, world
from spmd_trace.torch.values import Value


@pytest.mark.parametrize(
    ("ranks", "pieces"),
    [
        ([0, 1, 2, 3], [(4, 1)]),
        ([1, 5], [(2, 4)]),
        ([0, 2, 8, 10], [(2, 2), (2, 8)]),
        ([5], []),
        ([0, 1, 3], None),
        ([3, 2, 1], None),
        ([0, 1, 2, 4], None),
    ],
)
def test_layouts_of_ranks(ranks, pieces):
    assert axes.layout(ranks) == pieces


def test_axes_are_what_lies_between_the_borders_of_groups(monkeypatch):
    groups = [("default_pg", list(range(16))), ("tp_group", [0, 1]), ("cp", [0, 2, 4, 6])]
    monkeypatch.setattr(world, "groups_of_this_rank", lambda: groups)
    monkeypatch.setattr(axes, "_variables", lambda: [])
    mesh = axes.mesh(world.Seen(), world.Job(16, 1))
    assert [(a.name, a.size, a.stride) for a in mesh.axes] == [
        ("every8", 2, 8),
        ("cp", 4, 2),
        ("tp", 2, 1),
    ]


def _rows(**digests):
    roles = {"x": "input"}
    return [
        {"name": name, "role": roles.get(name, "param"), "digest": digest}
        for name, digest in digests.items()
    ]


def test_kinds_are_what_ranks_have_in_common():
    rows = {0: _rows(w="1", b=None, x="1"), 1: _rows(w="2", b=None, x="1")}
    rows |= {2: _rows(w="1", b=None, x="3"), 3: _rows(w="2", b=None, x="3")}
    found = compared(0, rows, [["dp", 2, 2], ["tp", 2, 1]], {"w": ["dp"]})
    kinds = {"w": {"dp": "R", "tp": "V"}, "x": {"dp": "V", "tp": "R|I"}}
    # One number everywhere says nothing where other parameters are blocks.
    assert found["kinds"] == kinds | {"b": {"dp": "I"}}
    assert found["data"] == ["dp"]


def test_one_number_everywhere_is_whole_in_a_module_that_is_whole():
    names = ("a.weight", "a.bias", "b.weight", "b.bias", "bias")
    ranks = [_rows(**dict(zip(names, (one, None, "3", None, None)))) for one in ("1", "2")]
    found = compared(0, dict(enumerate(ranks)), [["tp", 2, 1]], {})["kinds"]
    assert found["b.bias"] == {"tp": "I"} and "a.bias" not in found and "bias" not in found


def test_a_parameter_whose_gradient_is_not_summed_is_invariant():
    rows = {0: _rows(w="1", x="1"), 1: _rows(w="1", x="2")}
    found = compared(0, rows, [["dp", 2, 1]], {})
    assert found["kinds"]["w"] == {"dp": "I"} and found["data"] == []


def test_equal_moments_tell_that_one_number_everywhere_is_no_block():
    """A weight of ones says nothing, and neither does a count of steps."""

    def kinds(moment: str, elements: int) -> dict:
        state = {"role": "opt_state", "elements": elements}
        weight = {"role": "param", "name": "w", "digest": None, "initial": None}
        ranks = [
            [weight, state | {"name": "w.exp_avg", "digest": digest}] for digest in ("a", moment)
        ]
        return compared(0, dict(enumerate(ranks)), [["dp", 2, 1]], {"w": ["dp"]})["kinds"]

    assert kinds("a", 4)["w"] == {"dp": "R"}
    assert "w" not in kinds("a", 1) and "w" not in kinds("b", 4)


def test_what_is_complete_before_it_is_summed_is_invariant_beside_blocks():
    def kinds(block: str, gradient: str) -> dict:
        ranks = [_rows(w="1", b=digest) for digest in ("1", block)]
        for rows, digest in zip(ranks, ("1", gradient)):
            rows.append({"name": "gradient w", "role": "gradient", "digest": digest})
        return compared(0, dict(enumerate(ranks)), [["tp", 2, 1]], {"w": ["tp"]})["kinds"]["w"]

    assert kinds("2", "1") == {"tp": "I"}
    assert kinds("2", "2") == {"tp": "R"}
    assert kinds("1", "1") == {"tp": "R"}  # all ranks may have the same batch


def test_ranks_that_share_a_model_and_its_loss_have_no_batches_of_their_own():
    def rank(cut, part, loss):
        digests = {"cut": cut, "norm": "1", "head": "1"}
        rows = [{"name": n, "role": "param", "digest": digest} for n, digest in digests.items()]
        return [
            *rows,
            {"name": "x", "role": "input", "digest": part},
            {"name": "loss.0", "role": "loss", "digest": loss},
        ]

    def data(*ranks):
        return compared(0, dict(enumerate(ranks)), [["tp", 2, 1]], {"norm": ["tp"]})["data"]

    # The parts of a sequence, whose norm is summed and whose head is not.
    assert data(rank("1", "1", "1"), rank("2", "2", "1")) == []
    assert data(rank("1", "1", "1"), rank("2", "2", "2")) == ["tp"]


def test_a_parameter_is_what_it_was_before_the_first_step():
    def rank(began, now, batch):
        parameter = {"name": "w", "role": "param", "initial": began, "digest": now}
        return [parameter, {"name": "x", "role": "input", "digest": batch}]

    axes = [["dp", 2, 1]]
    drifted = compared(0, {0: rank("1", "2", "1"), 1: rank("1", "3", "2")}, axes, {"w": ["dp"]})
    assert drifted["kinds"]["w"] == {"dp": "R"} and drifted["data"] == ["dp"]
    # One number everywhere says nothing, unless the steps since then have kept it equal.
    zeros = compared(0, {0: rank(None, "2", "1"), 1: rank(None, "3", "2")}, axes, {})
    assert "w" not in zeros["kinds"]
    kept = compared(0, {0: rank(None, "2", "1"), 1: rank(None, "2", "2")}, axes, {})
    assert kept["kinds"]["w"] == {"dp": "I"}


def test_what_ranks_had_in_common_and_have_no_more_has_drifted():
    def rank(began, now, sketch):
        weight = {"name": "w", "role": "param", "initial": began, "digest": now, "sketch": sketch}
        return [weight, {"name": "x", "role": "input", "digest": now}]

    def drifted(*ranks, **more):
        return compared(0, dict(enumerate(ranks)), [["dp", 2, 1]], {}, **more)["drifted"]

    assert drifted(rank("1", "2", [1.0, 0.5]), rank("1", "3", [1.0, 0.6])) == {"w": ["dp"]}
    assert drifted(rank(None, "2", [1.0, 0.5]), rank(None, "3", [1.0, 0.6])) == {
        "w": ["dp"]
    }  # zeros at first
    assert drifted(rank("1", "2", [1.0, 0.5]), rank("1", "2", [1.0, 0.5])) == {}
    assert (
        drifted(rank("1", "2", [1.0, 0.5]), rank("4", "3", [1.0, 0.6])) == {}
    )  # they never were one
    # The order of a sum is no drift, nor are models that ranks train apart and exchange.
    assert drifted(rank("1", "2", [1.0, 0.5]), rank("1", "3", [1.0, 0.5 + 1e-7])) == {}
    assert drifted(rank("1", "2", [1.0, 0.5]), rank("1", "3", [1.0, 0.6]), exchanged=["w"]) == {}
    assert drifted(rank("1", "2", [1.0, 0.5]), rank("1", "3", [1.0, 0.6]), apart=True) == {}


def test_buffers_that_have_drifted_are_of_each_rank():
    def rank(began, now, sketch):
        row = {"name": "b", "role": "buffer", "began": began, "digest": now, "sketch": sketch}
        return [row, {"name": "x", "role": "input", "digest": now}]

    def found(*ranks):
        said = compared(0, dict(enumerate(ranks)), [["dp", 2, 1]], {})
        assert said["drifted"] == {}
        return said["drifted_buffers"], said["kinds"]["b"]["dp"]

    assert found(rank(None, "2", [1.0, 0.5]), rank(None, "3", [1.0, 0.6])) == ({"b": ["dp"]}, "V")
    assert found(rank("1", "2", [1.0, 0.5]), rank("4", "3", [1.0, 0.6])) == ({}, "V")
    assert found(rank("1", "2", [1.0, 0.5]), rank("1", "2", [1.0, 0.5])) == ({}, "R|I")


def test_a_sketch_tells_rounding_from_a_step():
    torch = pytest.importorskip("torch")
    drawn = torch.Generator().manual_seed(0)
    weight = torch.randn(64, 32, generator=drawn)
    rounded, decayed = weight + weight * 1e-7, weight * 0.999
    moved = weight + 1e-3 * torch.randn(64, 32, generator=drawn)

    def drifts(other):
        ranks = [
            [
                {
                    "name": "w",
                    "role": "param",
                    "initial": "1",
                    "digest": d,
                    "sketch": evidence.sketch(w),
                }
            ]
            for d, w in (("2", weight), ("3", other))
        ]
        return bool(compared(0, dict(enumerate(ranks)), [["dp", 2, 1]], {})["drifted"])

    assert not drifts(weight.clone()) and not drifts(rounded)
    assert drifts(decayed) and drifts(moved)


def test_ranks_have_batches_of_their_own_where_gradients_are_summed():
    rows = {0: _rows(w="1", x="1"), 1: _rows(w="1", x="1")}
    same = compared(0, rows, [["dp", 2, 1]], {"w": ["dp"]})
    assert same["data"] == ["dp"] and same["kinds"]["x"] == {"dp": "R|I"}


def test_blocks_may_begin_as_one_number_where_other_parameters_are_cut():
    def rank(weight, bias, batch):
        cut = {"name": "w", "role": "param", "initial": weight, "digest": weight}
        zeros = {"name": "b", "role": "param", "initial": None, "digest": bias}
        return [cut, zeros, {"name": "x", "role": "input", "digest": batch}]

    rows = {0: rank("1", "1", "1"), 1: rank("2", "2", "1")}
    assert compared(0, rows, [["tp", 2, 1]], {})["kinds"]["b"] == {"tp": "V"}
    assert "b" not in compared(0, rows, [["tp", 2, 1]], {"b": ["tp"]})["kinds"]


@pytest.mark.parametrize("known_by", ["grad_of", "arrived_for"])
def test_a_gradient_is_summed_whichever_way_it_is_known(known_by):
    """DTensor hands the gradient of some parameters on without a name: it is seen in their
    `grad`."""
    weight = Value("f32", [4], {"role": "param", "name": "w"})
    gradient, total = Value("f32", [4]), Value("f32", [4])
    setattr(gradient, known_by, weight)
    ops = [Op("aten.detach.default", [Value("f32", [4])], [gradient], phase="bwd")]
    ops.append(Op("all_reduce_", [gradient], [total], {"group": "dp"}, phase="opt"))
    program = types.SimpleNamespace(ops=ops, axes_of=lambda op: [op.attrs["group"]])
    assert evidence.summed(program) == {"w": ["dp"]}
