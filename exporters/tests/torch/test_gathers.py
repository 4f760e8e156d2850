"""Gathers that autograd sees: their backward is one collective, whatever the backend."""

from traces import recorded

_SCRIPT = """
import torch, torch.distributed as dist, torch.distributed.nn.functional as functional
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    optimizer.zero_grad()
    rows = torch.cat(functional.all_gather(model(torch.randn(2, 4))))
    loss = torch.logsumexp(rows @ rows.t(), 1).mean()
    loss.backward()
    for weight in model.parameters():
        dist.all_reduce(weight.grad)
        weight.grad /= dist.get_world_size()
    optimizer.step()
"""


def test_the_backward_of_a_gather_is_a_reduce_scatter(tmp_path):
    (tmp_path / "script.py").write_text(_SCRIPT)
    trace, _ = recorded(tmp_path, "--world", 2, "script.py")
    names = ("all_gather", "reduce_scatter", "broadcast", "all_to_all")
    found = [op["op"] for op in trace["ops"] if op["op"].startswith(names)]
    assert found == ["all_gather", "reduce_scatter"]
