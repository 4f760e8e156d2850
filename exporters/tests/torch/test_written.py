"""Numbers that a script has made of the number of ranks, as floats: `rate / world`."""

import pytest

from traces import linted

_SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 5))
data, labels = torch.randn(64, 6), torch.randint(0, 5, (64,))
settings = {"rate": 0.1}

class Update:
    def __init__(self, rate):
        self.rate = rate

    @torch.no_grad()
    def step(self, by):
        share = self.rate / world
        a, b, c, d = model.parameters()
        a.sub_(0.1 / by * a.grad)
        b.add_(b.grad, alpha=-settings["rate"] / dist.get_world_size())
        c -= share * c.grad
        d.add_(d.grad, alpha=-share)

update = Update(0.1)
for step in range(3):
    x, y = data[step * 8 : step * 8 + 8], labels[step * 8 : step * 8 + 8]
    torch.nn.functional.cross_entropy(model(x[rank::world]), y[rank::world]).backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
    update.step(BY)
    model.zero_grad()
"""


def test_a_rate_that_is_divided_by_the_number_of_ranks_averages(tmp_path):
    done = linted(tmp_path, _SCRIPT.replace("BY", "world"), "--min-proof=100")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("by", ["1", "(world * world)"])
def test_one_that_is_divided_too_seldom_or_too_often_is_found(tmp_path, by):
    done = linted(tmp_path, _SCRIPT.replace("BY", by))
    assert "scale-mismatch" in done.stdout, done.stdout + done.stderr


def test_a_rate_that_grows_with_the_number_of_ranks_is_a_rate(tmp_path):
    script = _SCRIPT.replace("dist.all_reduce(p.grad)", "dist.all_reduce(p.grad.div_(world))")
    grows = script.replace("/ world", "* world").replace("/ dist", "* dist").replace("/ by", "* by")
    done = linted(tmp_path, grows.replace("BY", "world"), "--min-proof=100")
    assert done.returncode == 0, done.stdout + done.stderr
