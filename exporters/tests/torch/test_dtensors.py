"""Scripts whose parameters, batch and loss are DTensors: where a copy is used by all ranks as one,
and what its gradient is."""

import pytest

from traces import linted

_SCRIPT = """
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
dp = mesh.get_local_rank("dp")
torch.manual_seed(0)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        place = lambda t, *p: torch.nn.Parameter(distribute_tensor(t, mesh, p))
        self.up = place(torch.randn(24, 8) / 3, Replicate(), Shard(0))
        self.down = place(torch.randn(6, 24) / 5, Replicate(), Shard(1))
        self.scale = place(torch.ones(6), Replicate(), Replicate())

    def forward(self, x):
        y = torch.tanh(x @ self.up.t()) @ self.down.t()
        return y.redistribute(placements=(Shard(0), Replicate())) * self.scale

model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=False)
data, labels = torch.randn(64, 8), torch.randn(64, 6)
for step in range(4):
    x, y = data[step * 8 : step * 8 + 8], labels[step * 8 : step * 8 + 8]
    x, y = x[dp * 4 : dp * 4 + 4], y[dp * 4 : dp * 4 + 4]
    x, y = (DTensor.from_local(t, mesh, (Shard(0), Replicate()), run_check=False) for t in (x, y))
    loss = (model(x) - y).square().sum() / 48
    loss = loss.redistribute(placements=(Replicate(), Replicate()))
    optimizer.zero_grad()
    loss.backward()
    for p in model.parameters():
        if p.grad.placements != p.placements:
            p.grad = p.grad.redistribute(placements=p.placements)
    optimizer.step()
"""


def test_a_loss_that_is_a_dtensor_is_proved(tmp_path):
    done = linted(tmp_path, _SCRIPT, "--min-proof=100")
    assert done.returncode == 0, done.stdout + done.stderr


_MISTAKES = {
    "gradients are taken for whole": (
        "p.grad = p.grad.redistribute(placements=p.placements)",
        "p.grad = DTensor.from_local(p.grad._local_tensor, mesh, p.placements)",
    ),
    "addends are taken for the whole": (
        "y.redistribute(placements=(Shard(0), Replicate()))",
        "DTensor.from_local(y.to_local(), mesh, (Shard(0), Replicate()), run_check=False)",
    ),
    "the gradient of a copy is summed again": (
        "    optimizer.step()",
        "    dist.all_reduce(model.scale.grad._local_tensor, group=mesh.get_group('tp'))\n"
        "    optimizer.step()",
    ),
}


@pytest.mark.parametrize("mistake", _MISTAKES)
def test_a_mistake_with_dtensors_is_found(tmp_path, mistake):
    right, wrong = _MISTAKES[mistake]
    assert right in _SCRIPT
    done = linted(tmp_path, _SCRIPT.replace(right, wrong))
    assert done.returncode == 1, done.stdout + done.stderr


_SHARDED = """
import torch, torch.distributed as dist, torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput
from torch.distributed.tensor.parallel import RowwiseParallel, SequenceParallel, parallelize_module
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
dp = mesh.get_local_rank("dp")

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.RMSNorm(8), nn.Linear(8, 16), nn.Linear(16, 8, bias=False)

    def forward(self, x):
        return self.down(torch.tanh(self.up(self.norm(x))))

torch.manual_seed(0)
model = nn.Sequential(Layer(), nn.Linear(8, 4, bias=False))
rows = PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(Shard(1),))
plan = {"0": rows, "0.norm": SequenceParallel(), "0.up": ColwiseParallel(input_layouts=Shard(1))}
plan |= {"0.down": RowwiseParallel(output_layouts=Shard(1))}
plan |= {"1": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())}
parallelize_module(model, mesh["tp"], plan)
fully_shard(model, mesh=mesh["dp"])
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for step in range(3):
    x = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(2 * step + dp))
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()
"""


def test_norms_of_sequences_below_fsdp_are_summed_and_proved(tmp_path):
    done = linted(tmp_path, _SHARDED, "--min-proof=100")
    assert done.returncode == 0, done.stdout + done.stderr


# A vocabulary that four ranks do not divide: the last of them has a shorter block.
_UNEVEN = """
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 12), nn.Linear(12, 50))
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
draw = torch.Generator().manual_seed(dist.get_rank())
for step in range(3):
    words = torch.randint(50, (6,), generator=draw)
    optimizer.zero_grad()
    F.cross_entropy(model(words), words).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
"""


def test_uneven_blocks_are_proved(tmp_path):
    done = linted(tmp_path, _UNEVEN, "--min-proof=100")
    assert done.returncode == 0, done.stdout + done.stderr
