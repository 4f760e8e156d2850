"""Messages by which blocks go round the ranks, in other forms than a send and a receive."""

from spmd_trace.ranks import compared

from traces import recorded

_SCRIPT = """
import os, torch, torch.distributed as dist
import torch.distributed._functional_collectives as fc
dist.init_process_group("gloo")
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.manual_seed(0)
w = torch.nn.Parameter(torch.randn(6, 6))
optimizer = torch.optim.SGD([w], lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    x = torch.randn(3 * world, 6, generator=torch.Generator().manual_seed(step)).chunk(world)[rank]
    there = fc.permute_tensor(x.flatten(), [(r + 1) % world for r in range(world)], dist.group.WORLD)
    y = x @ w + fc.wait_tensor(there).view(x.shape)
    y.sum().backward()
    total, moving = w.grad.clone(), w.grad.clone()
    for _ in range(world - 1):
        got = torch.empty_like(moving)
        sent = dist.isend(moving, (rank + 1) % world)
        dist.recv(got, (rank - 1) % world)
        sent.wait()
        total, moving = total + got, got
    w.grad = total
    optimizer.step()
"""


def test_exchanges_with_one_rank_and_sums_by_messages(tmp_path):
    (tmp_path / "script.py").write_text(_SCRIPT)
    trace = recorded(tmp_path, "--world", 3, "script.py")[0]
    names = [op["op"] for op in trace["ops"]]
    assert "all_to_all" not in names
    perms = [op["attrs"]["perm"] for op in trace["ops"] if op["op"] == "collective_permute"]
    assert perms == [[[0, 1], [1, 2], [2, 0]]] * 3
    weight = next(one for one in trace["params"] if one["role"] == "param")
    assert weight["type"] == {"ranks": "R"}


def _turns(*places: int) -> dict:
    row = {"role": "part", "name": "p", "digest": ""}
    rows = {rank: [row | {"place": place}] for rank, place in enumerate(places)}
    return compared(0, rows, [("x", len(places), 1)], {})["turns"]


def test_parts_of_ranks_before():
    assert _turns(24, 0, 8, 16) == {"p": {"x": [0, 8, 1]}}
    assert _turns(12, 13, 10, 11) == {"p": {"x": [10, 1, 2]}}
    assert not _turns(0, 8, 16, 24)
    assert not _turns(24, 16, 8, 0)
    assert not _turns(8, 0, 8, 16)
