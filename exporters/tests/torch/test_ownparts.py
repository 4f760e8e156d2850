"""What one rank's program does not show: parts that ranks take each for itself, what they draw with
one seed, copies that torch makes inside of composite functions.
"""

import pytest

from traces import recorded

_SCRIPT = """
import os, torch, torch.distributed as dist, torch.nn.functional as F
dist.init_process_group("gloo")
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.manual_seed(0)
w = torch.nn.Parameter(torch.randn(8, 6))
optimizer = torch.optim.SGD([w], lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    x = torch.ones(4, 3, 8)
    first = x.chunk(world, dim=0)[rank]
    second = x[:, :, rank * 4 : rank * 4 + 4]
    fixed = x[:, 0:1]
    before = torch.arange(8).chunk(world)[(rank - 1) % world]
    place = torch.arange(4) + (rank + 1) % world * 4
    y = torch.einsum("sbd,de->bse", first.transpose(0, 1).transpose(1, 0), w)
    y = F.dropout(y, 0.5, True)
    (y.sum() + second.sum() + fixed.sum() + (before * place).sum()).backward()
    dist.all_reduce(w.grad)
    optimizer.step()
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("own")
    (folder / "script.py").write_text(_SCRIPT)
    return recorded(folder, "--world", 2, "script.py")[0]


def test_a_part_that_each_rank_takes_for_itself_is_a_shard(trace):
    taken = [op["attrs"]["dst"] for op in trace["ops"] if op["op"] == "convert"]
    assert sorted(taken) == ["S(0)", "S(0)", "S(0)", "S(2)"]
    assert [op["op"] for op in trace["ops"] if op["op"].startswith("aten.slice")]


def test_the_part_of_another_rank_is_a_shard_of_what_was_moved_on(trace):
    moved = [op["attrs"] for op in trace["ops"] if op["op"] == "aten.roll.default"]
    assert moved == [{"shifts": [4], "dims": [0]}] * 2


def test_draws_that_are_equal_are_the_same(trace):
    drawn = [op for op in trace["ops"] if op["op"].startswith("aten.bernoulli")]
    kinds = [out["type"] for op in drawn for out in op["out"]]
    assert kinds and all(kind == {"ranks": "R|I"} for kind in kinds)


def test_copies_inside_of_a_composite_function_come_from_its_operands(trace):
    names = [value["name"] for value in trace["params"]]
    assert not [name for name in names if name.startswith("input.")], names
