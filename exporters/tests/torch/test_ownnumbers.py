"""Numbers in which ranks differ are values of each rank, and not those of the recorded one."""

import jsonschema

import spmd_trace.torch  # noqa: F401  before torch
from traces import recorded, schema

_SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    torch.manual_seed(step)
    x, words = torch.randn(8, 4), torch.arange(8)
    optimizer.zero_grad()
    steady = model(x) * (2 * rank + 3)
    wild = steady + [0.5, 0.1, 0.7, 0.9][rank]
    part = steady[rank : rank + 2]
    uneven = steady[[0, 1, 3, 4][rank] : [1, 3, 4, 8][rank]]
    mine = words - 2 * rank
    (wild.mean() + uneven.sum() + part.sum() + steady.mean() * 5 + mine.sum()).backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
    optimizer.step()
"""


def test_numbers_of_ranks_are_values(tmp_path):
    (tmp_path / "script.py").write_text(_SCRIPT)
    trace, _ = recorded(tmp_path, "--world", 4, "script.py")
    jsonschema.Draft202012Validator(schema()).validate(trace)
    made = {out["id"]: op for op in trace["ops"] for out in op.get("out", [])}
    forward = [op for op in trace["ops"] if op.get("phase", "fwd") == "fwd"]

    def only(name: str, taken: list | None = None) -> dict:
        (op,) = [op for op in forward if op["op"] == name and taken in (None, op["in"][1:])]
        return op

    # 2 * rank + 3, as arithmetic on the place of the rank.
    (steady,) = [op for op in forward if op["op"] == "aten.mul.Tensor" and op["in"][1] != 5]
    moved = made[steady["in"][1]]
    assert (moved["op"], moved["in"][1]) == ("add", 3)
    scaled = made[moved["in"][0]]
    assert (scaled["op"], scaled["in"][1]) == ("mul", 2)
    assert made[scaled["in"][0]]["attrs"] == {"axis": "ranks"}
    # A number that follows no rule comes from outside.
    (own,) = [one for one in trace["params"] if one["name"].startswith("number.")]
    assert own["type"] == {"ranks": "V"} and own["dtype"] == "f32"
    assert any(op["in"][-1] == own["id"] for op in forward if op["op"] == "aten.add.Tensor")
    # Parts that lie over each other, or are uneven, are of no known type.
    slices = [op for op in forward if op["op"] == "aten.slice.Tensor"]
    assert [op["out"][0]["type"] for op in slices] == [{"ranks": "?"}] * 2
    # What all ranks have stays a number.
    assert only("aten.mul.Tensor", [5])
