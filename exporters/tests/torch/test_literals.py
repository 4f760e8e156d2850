"""Numbers of a script that it makes tensors of: those in which ranks differ are not equal."""

import json
import subprocess
import sys

import pytest

_BEGINNING = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
draws = torch.Generator().manual_seed(1 + rank)
for _ in range(3):
    optimizer.zero_grad()
"""
_SCRIPT = (
    _BEGINNING
    + """\
    loss = model(torch.randn(2, 4, generator=draws)).square().mean()
    loss.backward()
    optimizer.step()
    logged = torch.tensor(loss.item() / 2)
    dist.all_reduce(logged)
    counts = torch.tensor([loss.item(), 1.0])
    dist.all_reduce(counts)
    equal = torch.tensor(0.25)
    dist.all_reduce(equal)
    count = torch.tensor(8)
    dist.all_reduce(count)
"""
)


def _run(folder, code, *words):
    (folder / "script.py").write_text(code)
    line = [sys.executable, "-m", "spmd_trace", *words, "--world", "2", "script.py"]
    return subprocess.run(line, capture_output=True, text=True, check=False, cwd=folder)


def test_numbers_that_ranks_log_differ_where_they_do(tmp_path):
    done = _run(tmp_path, _SCRIPT, "lint", "--format=json")
    findings = json.loads(done.stdout)["findings"]
    assert [finding["name"] for finding in findings] == ["reduce-of-replicated"], done.stderr
    line = _SCRIPT.split("\n").index("    dist.all_reduce(equal)") + 1
    assert findings[0]["places"][0]["line"] == line
    _run(tmp_path, _SCRIPT, "record", "-o", "step.spmd.json")
    trace = json.loads((tmp_path / "step.spmd.json").read_text())
    constants = [one for one in trace["params"] if one["role"] == "const"]
    assert [list(one["type"].values()) for one in constants] == [["V"], ["V"], ["V"]]


_INDEXED = (
    _BEGINNING
    + """\
    x = torch.randn(6, 4, generator=draws)
    target = torch.randint(4, (6,), generator=draws)
    count = torch.tensor(COUNT)
    dist.all_reduce(count)
    own = model(x).log_softmax(-1)[range(6), target]
    loss = LOSS
    loss.backward()
    optimizer.step()
"""
)
_LOSSES = {
    "of all ranks": ("[float(len(x))]", "-own.sum() * 2 / count.sum()"),
    "number of ranks": ("1.0", "-own.mean() * 2 / count"),
    "of one rank": ("6", "-own.mean()"),
}


@pytest.mark.parametrize("name", _LOSSES)
def test_a_loss_by_index_and_a_count_that_is_summed(name, tmp_path):
    count, loss = _LOSSES[name]
    code = _INDEXED.replace("COUNT", count).replace("LOSS", loss)
    done = _run(tmp_path, code, "lint", "--format=json")
    assert json.loads(done.stdout)["findings"] == [], done.stderr


_STEP = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
words, places, head = torch.nn.Embedding(8, 4), torch.nn.Embedding(8, 4), torch.nn.Linear(4, 1)
parameters = [*words.parameters(), *places.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1)
data = torch.randint(8, (2, 8))
part = 8 // world
for _ in range(3):
    optimizer.zero_grad()
    mine = data[:, rank * part : (rank + 1) * part]
    x = words(mine) + places({place})
    {between}
    head(x.tanh()).sum().backward()
    for each in parameters:
        dist.all_reduce(each.grad)
    optimizer.step()
"""
_RING = """sent, got = x.detach().clone(), torch.empty_like(x)
    ops = [dist.P2POp(dist.isend, sent, (rank + 1) % world)]
    ops += [dist.P2POp(dist.irecv, got, (rank - 1) % world)]
    [each.wait() for each in dist.batch_isend_irecv(ops)]
    x = x + 0 * got"""


def test_positions_of_a_rank_are_its_block_of_all(tmp_path):
    place = "torch.arange(rank * part, rank * part + mine.shape[1])"
    done = _run(tmp_path, _STEP.format(place=place, between=""), "lint")
    assert "gradients of 4 of 4 parameters proved" in done.stderr, done.stderr


def test_numbers_of_a_rank_differ_where_messages_go_round(tmp_path):
    script = _STEP.format(place="torch.arange(part)", between=f"{_RING} + x * (1.0 + rank)")
    _run(tmp_path, script, "record", "-o", "step.spmd.json")
    trace = json.loads((tmp_path / "step.spmd.json").read_text())
    own = [one for one in trace["params"] if one["name"].startswith("number.")]
    assert [list(one["type"].values()) for one in own] == [["V"]]


_ROWS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
table = torch.nn.Parameter(torch.randn(8, 4).chunk(world)[rank].clone())
optimizer = torch.optim.SGD([table], lr=0.1)
draws = torch.Generator().manual_seed(rank)
for _ in range(3):
    ids = torch.randint(8, (6,), generator=draws).sort().values
    asked = torch.bincount(ids // (8 // world), minlength=world)
    counts = torch.empty_like(asked)
    dist.all_to_all_single(counts, asked)
    rows = torch.empty(int(counts.sum()), dtype=ids.dtype)
    dist.all_to_all_single(rows, ids, counts.tolist(), asked.tolist())
    optimizer.zero_grad()
    table[rows - rank * (8 // world)].square().sum().backward()
    optimizer.step()
"""


def test_what_ranks_ask_each_other_for_by_numbers_is_known_where_all_run(tmp_path):
    done = _run(tmp_path, _ROWS, "record", "-o", "step.spmd.json")
    assert done.returncode == 0, done.stderr
    trace = json.loads((tmp_path / "step.spmd.json").read_text())
    assert [one["shape"] for one in trace["params"] if one["role"] == "param"] == [[4, 4]]
