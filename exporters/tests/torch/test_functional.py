"""Scripts without an optimizer that ask for no backward: training by `torch.func`, inference."""

import gc
import sys

import pytest
import spmd_trace.torch  # noqa: F401  before torch
import torch
from spmd_trace.torch.script import roles
from traces import linted, recorded

_TRAINS = """
import torch, torch.distributed as dist
from torch.func import functional_call, grad_and_value, vmap
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 5))
params = {k: v.detach().clone() for k, v in model.named_parameters()}
velocity = {k: torch.zeros_like(v) for k, v in params.items()}
data, labels = torch.randn(64, 6), torch.randint(0, 5, (64,))

def objective(params, x, y):
    return torch.nn.functional.cross_entropy(functional_call(model, params, (x,)), y)

for step in range(4):
    x, y = data[step * 8 : step * 8 + 8], labels[step * 8 : step * 8 + 8]
    grads, loss = grad_and_value(objective)(params, x[rank::world], y[rank::world])
    for gradient in grads.values():
        dist.all_reduce(gradient)
        gradient /= world
    velocity = {k: 0.9 * v + grads[k] for k, v in velocity.items()}
    params = {k: p - 0.1 * velocity[k] for k, p in params.items()}
    dist.all_reduce(loss)
    print(step, loss.item() / world)
"""


def test_gradients_of_a_transform_are_proved(tmp_path):
    done = linted(tmp_path, _TRAINS, "--min-proof=100")
    assert done.returncode == 0, done.stdout + done.stderr


_WRONG = {
    "nobody sums them": "        dist.all_reduce(gradient)\n",
    "nobody averages them": "        gradient /= world\n",
}


@pytest.mark.parametrize("mistake", _WRONG)
def test_a_mistake_with_gradients_of_a_transform_is_found(tmp_path, mistake):
    assert _WRONG[mistake] in _TRAINS
    done = linted(tmp_path, _TRAINS.replace(_WRONG[mistake], ""), "--fail-on=warning")
    assert done.returncode == 1, done.stdout + done.stderr


_HELPERS = """
aux = torch.func.grad(lambda p, q: ((p["a"] * q).sum(), "more"), has_aux=True)
found, more = aux({"a": torch.arange(3.0), "b": torch.ones(2)}, torch.tensor([1.0, 2.0, 4.0]))
assert more == "more" and found["a"].tolist() == [1.0, 2.0, 4.0] and not found["b"].any()
second = torch.func.grad(lambda p, q: p.sum() * q.sum(), argnums=(1, 0))(torch.ones(2), torch.ones(3))
assert [one.tolist() for one in second] == [[2.0] * 3, [3.0] * 2]
curve = torch.func.grad(torch.func.grad(lambda t: t**3))(torch.tensor(2.0))
assert curve.item() == 12.0
slopes = vmap(torch.func.grad(lambda t: t**2))(torch.tensor([1.0, 2.0]))
assert slopes.tolist() == [2.0, 4.0]
for wrong in (lambda t: t * torch.ones(2), lambda t: 3):
    try:
        torch.func.grad(wrong)(torch.tensor(1.0))
    except RuntimeError:
        continue
    raise AssertionError("no gradient of that")
"""


def test_transforms_give_what_they_give_elsewhere(tmp_path):
    (tmp_path / "train.py").write_text(
        _TRAINS.replace("for step in range(4):", f"{_HELPERS}for step in range(4):")
    )
    recorded(tmp_path, "--world", 2, "--ranks", "one", "train.py")


_CURVES = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1, bias=False))
parameters = list(model.parameters())
for step in range(4):
    t = torch.rand(8, 1, generator=torch.Generator().manual_seed(step)).chunk(world)[rank]
    slope = torch.func.grad(lambda t: model(t).sum())(t)
    loss = (slope - t.cos()).square().mean()
    loss.backward()
    with torch.no_grad():
        for p in parameters:
            if p.grad is not None:
                dist.all_reduce(p.grad)
                p -= 0.1 / world * p.grad
                p.grad = None
    print(step, slope.requires_grad)
"""


def test_a_gradient_inside_of_a_loss_is_a_part_of_it(tmp_path):
    done = linted(tmp_path, _CURVES, "--min-proof=100")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 True" in done.stderr and '"warnings": 0' in done.stdout


_INFERS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.norm = torch.nn.LayerNorm(8)
        self.up = torch.nn.Parameter(torch.randn(64, 8).chunk(world)[rank].clone())
        self.down = torch.nn.Parameter(torch.randn(8, 64).chunk(world, 1)[rank].clone())

    def forward(self, x):
        y = (self.norm(x) @ self.up.t()).relu() @ self.down.t()
        dist.all_reduce(y)
        return x + y

model, x = Mlp(), torch.randn(4, 8)
with torch.no_grad():
    for token in range(TIMES):
        x = model(x)
print(x.sum().item())
"""


@pytest.mark.parametrize("times, which", [(3, "call 2 of 3"), (1, "call 1 of 1")])
def test_a_script_that_does_not_train_is_a_call_of_its_model(tmp_path, times, which):
    (tmp_path / "infer.py").write_text(_INFERS.replace("TIMES", str(times)))
    trace, said = recorded(tmp_path, "--world", 4, "infer.py")
    assert f"does not train: {which} of a model is recorded" in said
    assert trace["phase"] == "forward"
    assert [op["op"] for op in trace["ops"]].count("all_reduce_") == 1
    types = {one["name"]: one["type"]["ranks"] for one in trace["params"]}
    assert types["x"] == "R|I" and types["up"] == types["down"] == "V"
    assert [one["role"] for one in trace["outputs"]] == ["output"]


def test_a_look_at_all_objects_keeps_none_of_them(monkeypatch):
    frames, look = [], gc.get_objects

    def looks():
        frames.append(sys._getframe(1))  # as a thread does that looks at what others run
        return look()

    monkeypatch.setattr(gc, "get_objects", looks)

    def makes(number: int) -> int:
        roles._objects(torch.nn.Module)
        return number

    assert tuple(map(makes, range(40))) == tuple(range(40))
