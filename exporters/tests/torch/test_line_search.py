"""An optimizer that calls a closure several times and decides by what it gets."""

from traces import linted

_SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
data, target = torch.randn(64, 3), torch.randn(64, 1)
x, y = data[rank::world], target[rank::world]
words = {"lr": 0.5, "max_iter": 4, "line_search_fn": "strong_wolfe"}
optimizer = torch.optim.LBFGS(model.parameters(), **words)
def closure():
    optimizer.zero_grad()
    total = 0
    for a, b in zip(x.chunk(2), y.chunk(2)):
        loss = (model(a) - b).square().sum() / 64
        loss.backward()
        total = total + loss.detach()
    for p in model.parameters():
        dist.all_reduce(p.grad)
    dist.all_reduce(total)
    return total
for _ in range(4):
    optimizer.step(closure)
"""


def test_gradients_that_a_line_search_looks_at_are_proved(tmp_path):
    done = linted(tmp_path, _SCRIPT, "--min-proof=100")
    assert done.returncode == 0 and '"warnings": 0' in done.stdout, done.stdout + done.stderr


def test_addends_that_are_cleared_in_the_closure_are_found(tmp_path):
    before = "        loss.backward()\n"
    assert before in _SCRIPT
    done = linted(tmp_path, _SCRIPT.replace(before, f"        optimizer.zero_grad()\n{before}"))
    assert "dropped-gradients" in done.stdout, done.stdout + done.stderr
