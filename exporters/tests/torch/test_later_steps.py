"""Copies of parameters that drift apart only in a step after the recorded one."""

import json

from spmd_trace.runs.later import FILE, Rows
from traces import linted

# Five micro-batches an epoch: the last step of each has a gradient that nobody has summed.
_LEFT_OVER = """
import contextlib, torch, torch.distributed as dist, torch.nn.functional as F
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
drawn = torch.Generator().manual_seed(100 + dist.get_rank())
for epoch in range(3):
    for at in range(5):
        x = torch.randn(4, 3, generator=drawn)
        steps = at % 2 == 1 or at == 4
        sums = SUMS
        with contextlib.nullcontext() if sums else model.no_sync():
            (F.mse_loss(model(x), x.sum(1, keepdim=True).expand(4, 8)) / 2).backward()
        if steps:
            optimizer.step()
            optimizer.zero_grad()
"""

# A rate that each rank lowers by its own loss; the optimizer is a rank's own until then.
_OWN_RATE = """
import torch, torch.distributed as dist, torch.nn.functional as F
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
drawn = torch.Generator().manual_seed(100 + dist.get_rank())
for step in range(6):
    x = torch.randn(4, 3, generator=drawn)
    optimizer.zero_grad()
    F.mse_loss(model(x), x.sum(1, keepdim=True).expand(4, 8)).backward()
    optimizer.step()
    if step == 3 and dist.get_rank() == RANK:
        optimizer.param_groups[0]["lr"] = 0.01
"""

# The reducer averages what some ranks have not used as well.
_SELDOM_USED = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
class Heads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = torch.nn.ModuleList(torch.nn.Linear(4, 1) for _ in range(2))
    def forward(self, x, kind):
        return self.heads[kind](x)
model = torch.nn.parallel.DistributedDataParallel(Heads(), find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(10 * step + rank))
    loss = model(x, rank % 2).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_gradients_that_are_left_over_at_the_end_of_an_epoch(tmp_path):
    done = linted(tmp_path, _LEFT_OVER.replace("SUMS", "at % 2 == 1"), "--rank", "1")
    findings = json.loads(done.stdout)["findings"]
    assert {one["name"] for one in findings} == {"copies-drift"}, done.stdout + done.stderr
    assert all("before step 3" in one["message"] for one in findings)


def test_nothing_is_found_where_they_are_summed(tmp_path):
    done = linted(tmp_path, _LEFT_OVER.replace("SUMS", "steps"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_rate_that_one_rank_lowers_later(tmp_path):
    done = linted(tmp_path, _OWN_RATE.replace("RANK", "2"))
    assert "before step 5" in done.stdout, done.stdout + done.stderr
    done = linted(tmp_path, _OWN_RATE.replace("== RANK", ">= 0"))
    assert done.returncode == 0, done.stdout + done.stderr


# Ranks with fewer batches than others, epoch by epoch: their third step is in the second epoch.
_UNEVEN = """
import torch, torch.distributed as dist, torch.nn.functional as F
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
drawn = torch.Generator().manual_seed(100 + dist.get_rank())
for epoch in range(2):
    with model.join():
        for step in range(4 if dist.get_rank() == 0 else 3):
            x = torch.randn(4, 3, generator=drawn)
            optimizer.zero_grad()
            F.mse_loss(model(x), x.sum(1, keepdim=True).expand(4, 8)).backward()
            optimizer.step()
"""


def test_ranks_with_uneven_data(tmp_path):
    done = linted(tmp_path, _UNEVEN)
    assert done.returncode == 0, done.stdout + done.stderr


class _Run:
    def poll(self) -> int | None:
        return None


def _drift(folder, first: str, second: str, over: bool) -> dict:
    """What is found of a parameter whose values on two ranks are the letters of a text each, from
    step 2 on."""
    folders = {}
    for rank, values in enumerate((first, second)):
        folders[rank] = folder / str(rank)
        folders[rank].mkdir(parents=True)
        rows = [
            {"step": step, "digests": {"w": value}, "sketches": {"w": [float(ord(value))] * 4}}
            for step, value in enumerate(values, 2)
        ]
        text = "".join(json.dumps(row) + "\n" for row in [*rows, *([{}] if over else [])])
        (folders[rank] / FILE).write_text(text + '{"step": ', encoding="utf-8")  # half a row
    return Rows(folders, _Run(), 0).drift({"w": {"dp": "R"}}, [["dp", 2, 1]], 0)


def test_what_later_steps_do_to_copies(tmp_path):
    cases = [
        ("equal", "aaaa", "aaaa", True, {}),
        ("apart", "abcd", "abxy", True, {"w": {"dp": 4}}),
        ("together again", "abcd", "abxd", True, {}),
        ("not over", "abcd", "abxy", False, {}),
        ("for many steps", "a" * 17, "a" + "b" * 16, False, {"w": {"dp": 3}}),
        ("by the recorded step", "bcd", "xyz", True, {}),
        ("after the other rank is done", "abcd", "ab", True, {}),
        ("of which one rank takes fewer", "abcdef", "abxy", True, {}),
    ]
    for name, first, second, over, found in cases:
        assert _drift(tmp_path / name, first, second, over) == found, name


def test_copies_that_only_some_ranks_have_used_do_not_differ(tmp_path):
    done = linted(tmp_path, _SELDOM_USED)
    assert done.returncode == 0, done.stdout + done.stderr
