"""The making of a batch belongs to the step: which part of the data a rank has, and what it counts
of them."""

import pytest

from traces import linted, recorded

_SCRIPT = """
import os, torch, torch.distributed as dist, torch.nn.functional as F
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Linear(6, 5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data, labels = torch.randn(64, 6), torch.randint(0, 5, (64,))
rows = 8 // world
for step in range(4):
    {batch}
    kept = (y != 3).sum().float()
    dist.all_reduce(kept)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y, ignore_index=3, reduction="sum") / kept
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
    optimizer.step()
    logged = loss.detach()
    dist.all_reduce(logged)
    print(step, logged.item())
"""

_BATCHES = {
    "rows side by side": """
    x, y = data[step * 8 : step * 8 + 8], labels[step * 8 : step * 8 + 8]
    x, y = x[rank * rows : (rank + 1) * rows], y[rank * rows : (rank + 1) * rows]""",
    "every n-th row": """
    x = data[step * 8 : step * 8 + 8][rank::world]
    y = labels[step * 8 : step * 8 + 8][rank::world]""",
    "every n-th row of some": """
    pick = torch.randperm(64, generator=torch.Generator().manual_seed(step))[rank : 8 : world]
    x, y = data[pick], labels[pick]""",
    "from somewhere on": """
    first = step * 7 + rank * rows
    x, y = data[first : first + rows], labels[first : first + rows]""",
    "painted": """
    draws = torch.Generator().manual_seed(step * world + rank)
    x = torch.zeros(rows, 6)
    for row, at in enumerate(torch.randint(0, 4, (rows,), generator=draws).tolist()):
        x[row, at : at + 2] = 1.0
    y = torch.randint(0, 5, (rows,), generator=draws)""",
    "one of n parts": """
    x = data[step * 8 : step * 8 + 8].tensor_split(world)[rank]
    y = labels[step * 8 : step * 8 + 8].tensor_split(world)[rank]""",
    "one of n entries": """
    x = data[step * 8 : step * 8 + 8].view(world, rows, 6)[rank]
    y = labels[step * 8 : step * 8 + 8].view(world, rows)[rank]""",
    "by numbers": """
    pick = torch.arange(step * 8 + rank * rows, step * 8 + (rank + 1) * rows)
    x, y = data[pick], labels[pick]""",
    "in an order of chance": """
    pick = torch.randperm(64, generator=torch.Generator().manual_seed(step))[:8].chunk(world)[rank]
    x, y = data[pick], labels[pick]""",
    "drawn": """
    draws = torch.Generator().manual_seed(step)
    x = torch.randn(8, 6, generator=draws).chunk(world)[rank]
    y = torch.randint(0, 5, (8,), generator=draws).chunk(world)[rank]""",
    "picked from a list": """
    draws = torch.Generator().manual_seed(step)
    marks = [torch.randint(0, 5, (1,), generator=draws) for _ in range(8)]
    rows_of = [torch.randn(6, generator=draws) + mark for mark in marks]
    x, y = torch.stack(rows_of)[rank::world], torch.cat(marks[rank::world])""",
    "drawn by weights": """
    draws = torch.Generator().manual_seed(step)
    y = torch.multinomial(torch.tensor([0.1, 0.2, 0.3, 0.1, 0.3]), 8, True, generator=draws)
    x = torch.randn(8, 6, generator=draws) + y[:, None]
    x, y = x[rank * rows : (rank + 1) * rows], y[rank * rows : (rank + 1) * rows]""",
}


@pytest.mark.parametrize("how", _BATCHES)
def test_all_gradients_are_proved_where_ranks_take_parts_of_the_data(tmp_path, how):
    script = _SCRIPT.format(batch=_BATCHES[how].strip())
    done = linted(tmp_path, script, "--min-proof=100")
    assert done.returncode == 0, done.stdout + done.stderr


_MICRO = """
import torch, torch.distributed as dist, torch.nn.functional as F
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(6, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
shared = torch.Generator().manual_seed(0)
data, labels = torch.randn(64, 6, generator=shared), torch.randint(0, 5, (64,), generator=shared)

def batch():
    rows = torch.randint(62, (3,))
    x = torch.stack([data[i : i + 2] for i in rows]).flatten(0, 1)
    return x, torch.stack([labels[i : i + 2] for i in rows]).flatten()

x, y = batch()
for step in range(4):
    for micro in range(3):
        model.require_backward_grad_sync = micro == 2
        loss = F.cross_entropy(model(x), y) / 3
        x, y = batch()
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_batch_that_is_made_between_two_backwards_is_one_of_each_rank(tmp_path):
    done = linted(tmp_path, _MICRO, "--min-proof=100")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_micro_batch_that_is_not_summed_is_found(tmp_path):
    done = linted(tmp_path, _MICRO.replace("micro == 2", "micro == 0"))
    assert done.returncode == 1, done.stdout + done.stderr


def test_a_count_of_own_rows_is_found_ahead_of_the_step(tmp_path):
    script = _SCRIPT.format(batch=_BATCHES["every n-th row"].strip()).replace(
        "    dist.all_reduce(kept)\n", ""
    )
    done = linted(tmp_path, script)
    assert "unequal-counts" in done.stdout, done.stdout + done.stderr


def _trace(folder, script: str) -> dict:
    (folder / "train.py").write_text(script)
    return recorded(folder, "--world", 4, "train.py")[0]


def test_what_the_step_before_logs_and_the_next_batch_are_left_out(tmp_path):
    trace = _trace(tmp_path, _SCRIPT.format(batch=_BATCHES["every n-th row"].strip()))
    names = [op["op"] for op in trace["ops"]]
    assert names.count("convert") == 2
    # The count, two gradients, and the loss of this step.
    assert names.count("all_reduce_") == 4


def test_rows_that_no_operation_explains_come_from_outside(tmp_path):
    batch = """
    x = data[step * 8 :][list(range(rank, 8, world))]
    y = labels[step * 8 :][rank * 2 : rank * 2 + 2]"""
    trace = _trace(tmp_path, _SCRIPT.format(batch=batch.strip()))
    types = {one["name"]: one["type"]["ranks"] for one in trace["params"] if one["role"] == "input"}
    assert types == {"data": "R|I", "input.1": "V", "y": "V"}  # input.1: the list of rows


# Four labels of two kinds, which all ranks happen to have alike in the second micro-batch.
_ALIKE = """
import torch, torch.distributed as dist, torch.nn.functional as F
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(6, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = [(torch.randn(4, 6, generator=torch.Generator().manual_seed(8 * one + rank)),
            torch.tensor([0, 1, 1, 0]) if one % 2 else torch.arange(4) + rank < 3)
           for one in range(8)]
for step in range(4):
    optimizer.zero_grad()
    for x, y in batches[2 * step : 2 * step + 2]:
        (F.cross_entropy(model(x), y.long()) / 2).backward()
    optimizer.step()
"""


def test_labels_that_are_equal_by_chance(tmp_path):
    done = linted(tmp_path, _ALIKE, "--min-proof=100")
    assert done.returncode == 0, done.stdout + done.stderr
