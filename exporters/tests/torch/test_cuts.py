"""Cuts that a second size of an axis shows: what counts as one, and what proves nothing."""

import json

import pytest
from traces import COPY, SUM, linted

from spmd_trace import cuts


def _document(
    tp: int, shapes: dict[str, list[int]], ops=("aten.mm", "aten.relu"), **claims
) -> dict:
    """A program whose operations each take one value."""
    values = [
        {"id": f"%{at}", "role": "param", "name": name, "shape": shape, "type": {"tp": "V"}}
        for at, (name, shape) in enumerate(shapes.items())
    ]
    for value in values:
        value |= claims.get(value["name"], {})
    rows = [{"op": op, "in": [one["id"]], "out": []} for op, one in zip(ops, values)]
    axes = [{"name": "tp", "size": tp, "stride": 1}]
    document = {"format": "spmd-trace", "meshes": [{"id": "main", "axes": axes}], "locs": []}
    return document | {"params": values, "ops": rows}


def _written(path, document: dict):
    path.write_text(json.dumps(document))
    return path


def _found(tmp_path, first: dict, second: dict, **how) -> tuple[dict[str, list], int, str]:
    files = (_written(tmp_path / "first", first), _written(tmp_path / "second", second))
    count, words = cuts.state(*files, "tp", **how)
    document = json.loads((tmp_path / "first").read_text())
    return {one["name"]: one.get("spec") for one in document["params"]}, count, words


def test_an_extent_in_the_ratio_of_the_sizes_is_cut(tmp_path):
    found = _found(
        tmp_path,
        _document(4, {"columns": [32, 8], "whole": [32, 32]}),
        _document(2, {"columns": [32, 16], "whole": [32, 32]}),
    )
    assert found == ({"columns": [None, "tp"], "whole": None}, 1, "")
    value, _ = json.loads((tmp_path / "first").read_text())["params"]
    assert value["x_cuts"] == {"tp": "sizes"}


def test_other_changes_prove_nothing(tmp_path):
    """A padded vocabulary, two dimensions that change, one that grows with the axis."""
    first = _document(4, {"padded": [33, 8], "both": [8, 8]})
    assert _found(tmp_path, first, _document(2, {"padded": [65, 8], "both": [16, 16]}))[1] == 0
    first = _document(4, {"counts": [4], "batch": [8]})
    assert _found(tmp_path, first, _document(2, {"counts": [2], "batch": [8]}))[1] == 0


def test_placements_and_equal_values_come_first(tmp_path):
    shapes, half = {"placed": [8, 8], "equal": [8, 8]}, {"placed": [16, 8], "equal": [16, 8]}
    stated = {"placed": {"spec": [None, "tp"]}, "equal": {"type": {"tp": "R"}}}
    found, count, _ = _found(tmp_path, _document(4, shapes, **stated), _document(2, half))
    assert found == {"placed": [None, "tp"], "equal": None} and count == 0


def test_a_gradient_has_the_cut_of_its_parameter(tmp_path):
    contract = {"grad": {"type": {"tp": "V"}, "step": {"type": {"tp": "V"}}}}
    _found(
        tmp_path,
        _document(4, {"weight": [8, 4]}, **{"weight": contract}),
        _document(2, {"weight": [16, 4]}),
    )
    (value,) = json.loads((tmp_path / "first").read_text())["params"]
    assert value["grad"]["spec"] == value["grad"]["step"]["spec"] == ["tp", None]


def test_what_does_not_pair_stays_unknown_and_is_said(tmp_path):
    first = _document(4, {"a": [8, 8], "b": [8, 8]})
    second = _document(2, {"a": [16, 8], "b": [16, 8]}, ops=("aten.mm", "aten.gelu"))
    found = _found(tmp_path, first, second)
    words = "1 of 2 operations have no counterpart there"
    assert found == ({"a": ["tp", None], "b": None}, 1, words)


def test_what_may_be_several_blocks_has_no_cut_unless_a_rank_made_it(tmp_path):
    made = {"made": {"separate": ["tp"]}}
    first = _document(4, {"made": [8, 4], "taken": [8, 4]}, **made)
    assert cuts.of_own_parameters(_written(tmp_path / "alone", first)) == {"tp"}
    second = _document(2, {"made": [16, 4], "taken": [16, 4]})
    found, count, _ = _found(tmp_path, first, second, sure=True)
    assert found == {"made": ["tp", None], "taken": None} and count == 1
    # Blocks that were seen to be several are none, whatever is sure.
    several = _document(4, {"fused": [24]}, fused={"taken": ["tp"]})
    assert _found(tmp_path, several, _document(2, {"fused": [48]}))[1] == 0


@pytest.mark.parametrize(
    "op, number, other, scale",
    [
        ("aten.sub.Tensor", 0.1 / 12, 0.1 / 24, "tp"),
        ("aten.add.Tensor", 0.25, 1.0, "1/(tp*tp)"),
        ("aten.sub.Tensor", 0.1, 0.1, None),
        ("aten.sub.Tensor", 0.1, 0.07, None),
        ("aten.sub.Tensor", 0.1, -0.05, None),
        ("aten.sub.Tensor", 2, 4, None),
        ("aten.mul.Tensor", 0.5, 0.25, None),
    ],
)
def test_added_numbers_that_are_powers_of_the_size_have_its_scale(
    tmp_path, op, number, other, scale
):
    paths = []
    for size, one in ((4, number), (2, other)):
        document = _document(size, {"a": [8]}, ops=(op,))
        document["ops"][0]["in"].append(one)
        paths.append(_written(tmp_path / str(size), document))
    assert cuts.state_numbers(*paths, "tp") == (scale is not None)
    document = json.loads(paths[0].read_text())
    sized = [one for one in document["params"] if one["role"] == "const"]
    assert [one["scale"] for one in sized] == ([scale] if scale else [])
    assert document["ops"][0]["in"][1] == (sized[0]["id"] if sized else number)


_LAYER = (
    """
import torch, torch.distributed as dist, torch.nn as nn
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
"""
    + COPY
    + SUM
    + """
torch.manual_seed(rank)
up, down = nn.Linear(8, 16 // world), nn.Linear(16 // world, 8, bias=False)
optimizer = torch.optim.AdamW([*up.parameters(), *down.parameters()], 1e-3)
torch.manual_seed(1)
for _ in range(3):
    x = torch.randn(4, 8)
    y = down(up(Copy.apply(x)).relu())
    loss = RESULT.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
)


def test_another_number_of_ranks_says_what_ranks_that_make_weights_have(tmp_path):
    done = linted(tmp_path, _LAYER.replace("RESULT", "Sum.apply(y)"), "-o", "kept.spmd.json")
    assert done.returncode == 0, done.stdout + done.stderr
    kept = json.loads((tmp_path / "kept.spmd.json").read_text())
    found = [str(one.get("spec")) for one in kept["params"] if one["role"] == "param"]
    assert sorted(found) == ["['ranks', None]", "['ranks']", "[None, 'ranks']"]
    # Nothing is inferred, so what is wrong is an error.
    done = linted(tmp_path, _LAYER.replace("RESULT", "Sum.apply(y * y.mean())"))
    findings = [(one["severity"], one["name"]) for one in json.loads(done.stdout)["findings"]]
    assert findings == [("error", "partial-times-partial")]


def test_the_size_and_the_ranks_are_read_from_the_option():
    vary = cuts.Vary.read("tp=2: --tp 2 --fast")
    assert (vary.axis, vary.size, vary.arguments) == ("tp", 2, ["--tp", "2", "--fast"])
    axes = [["dp", 2, 4], ["tp", 4, 1]]
    assert vary.ranks(axes, 8, 1) == {"per_node": 4, "nodes": 1}
    assert cuts.Vary.read("dp=3").ranks(axes, 1, 8) == {"per_node": 1, "nodes": 12}
    assert cuts.Vary.read("dp=4").arguments is None
    for words, said in [
        ("tp", "AXIS=SIZE"),
        ("cp=2:", "the axes are dp, tp"),
        ("tp=4:", "as it is"),
    ]:
        with pytest.raises(ValueError, match=said):
            cuts.Vary.read(words).ranks(axes, 8, 1)
    with pytest.raises(ValueError, match="4 ranks, with 3 for 4 of tp"):
        cuts.Vary.read("tp=3").ranks([["tp", 4, 1]], 2, 2)
