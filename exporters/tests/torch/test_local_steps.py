"""Ranks that train copies of a model apart, and average them every few steps."""

from traces import linted

_SCRIPT = """
import torch, torch.distributed as dist, torch.nn.functional as F
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
drawn = torch.Generator().manual_seed(100 + rank)
for step in range(1, 41):
    x = torch.randn(8, 3, generator=drawn)
    optimizer.zero_grad()
    F.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
    optimizer.step()
    if step % 10 == 0:
        for p in model.parameters():
            dist.all_reduce(p.data)
            p.data /= world
"""


def test_nothing_is_found_where_copies_come_together_later(tmp_path):
    done = linted(tmp_path, _SCRIPT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"warnings": 0' in done.stdout


def test_copies_that_never_do_have_drifted(tmp_path):
    done = linted(tmp_path, _SCRIPT.replace("step % 10", "step % 100"))
    assert "copies-drift" in done.stdout, done.stdout + done.stderr


def test_models_that_ranks_train_for_themselves_have_losses_of_their_own(tmp_path):
    script = _SCRIPT.replace("manual_seed(0)", "manual_seed(rank)").replace(
        "step % 10", "step % 100"
    )
    done = linted(tmp_path, script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"warnings": 0' in done.stdout
