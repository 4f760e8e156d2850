"""Groups of ranks are resolved to axes by their layout."""

import pytest

from spmd_trace.torch import Axis, Mesh


@pytest.fixture
def mesh() -> Mesh:
    return Mesh("m", [Axis("dp", 2, 8), Axis("cp", 2, 4), Axis("tp", 4, 1)])


@pytest.mark.parametrize(
    "ranks, rank, axes",
    [
        ([0, 1, 2, 3], 0, ["tp"]),
        ([12, 13, 14, 15], 14, ["tp"]),
        ([1, 5], 5, ["cp"]),
        ([3, 11], 3, ["dp"]),
        ([0, 4, 8, 12], 0, ["dp", "cp"]),
        (list(range(8)), 0, ["cp", "tp"]),
        (list(range(16)), 7, ["dp", "cp", "tp"]),
        ([0, 3], 0, None),
        ([5, 1], 1, None),
    ],
)
def test_axes_of_group(mesh, ranks, rank, axes):
    assert mesh.axes_of_group(ranks, rank) == axes


def test_coordinates(mesh):
    assert [mesh.coordinate(axis, 13) for axis in ("dp", "cp", "tp")] == [1, 1, 1]


def test_overlapping_axes_are_refused():
    with pytest.raises(ValueError, match="overlap at stride 2"):
        Mesh("m", [Axis("a", 4, 2), Axis("b", 4, 1)])


def test_a_tuple_of_axes_has_a_name():
    mesh = Mesh("m", [Axis("edp", 2, 4), Axis("ep", 2, 2), Axis("tp", 2, 1)], {"dp": ["edp", "ep"]})
    assert mesh.axes_of_group([0, 2, 4, 6], 0) == ["dp"]
    assert mesh.axes_of_group([0, 1, 2, 3], 0) == ["ep", "tp"]
    assert mesh.pieces("dp") == ["edp", "ep"] and mesh.pieces("tp") == ["tp"]
    assert mesh.kinds(dp="R", tp="V") == {"edp": "R", "ep": "R", "tp": "V"}
    assert mesh.json()["axes"][-1] == {"name": "dp", "of": ["edp", "ep"]}
