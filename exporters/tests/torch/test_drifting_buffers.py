"""Buffers that began equal, and that each rank moves on by its own batch."""

from traces import linted

_SCRIPT = """
import torch, torch.distributed as dist, torch.nn as nn
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

class Centred(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8)
        self.outer = nn.Linear(8, 5)
        self.register_buffer("centre", torch.zeros(1, 5))

    def forward(self, x):
        y = self.outer(torch.relu(self.norm(self.inner(x))))
        moved = y.detach() - self.centre
        with torch.no_grad():
            mean = y.detach().mean(0, keepdim=True)
            if SYNC:
                dist.all_reduce(mean)
                mean = mean / world
            self.centre = 0.9 * self.centre + 0.1 * mean
        return (torch.softmax(moved, 1) * torch.log_softmax(y, 1)).sum(1).mean()

model = Centred()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
drawn = torch.Generator().manual_seed(100 + rank)
for step in range(4):
    x = torch.randn(8, 6, generator=drawn)
    optimizer.zero_grad()
    (-model(x)).backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
    optimizer.step()
"""


def test_a_buffer_by_which_ranks_train_has_drifted(tmp_path):
    done = linted(tmp_path, _SCRIPT.replace("SYNC", "False"))
    assert "copies-drift" in done.stdout and "centre" in done.stdout, done.stdout + done.stderr


def test_statistics_that_ranks_only_move_on_have_not(tmp_path):
    done = linted(tmp_path, _SCRIPT.replace("SYNC", "True"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"warnings": 0' in done.stdout
