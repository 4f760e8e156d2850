"""A teacher that is not trained, whose biases are still zero, and losses of rows that a mask has
picked, of which each rank has its own number."""

from judged import proved
from traces import recorded

_SCRIPT = """
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
teacher = nn.TransformerEncoderLayer(12, 2, 24, dropout=0.0, batch_first=True)
teacher.eval().requires_grad_(False)
student = nn.parallel.DistributedDataParallel(nn.Linear(12, 12))
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
for step in range(3):
    draw = torch.Generator().manual_seed(4 * step + rank)
    x = torch.randn(3, 5, 12, generator=draw)
    keep = torch.rand(3, 5, generator=draw) < [0.3, 0.5, 0.7, 0.9][rank]
    count = keep.sum()
    dist.all_reduce(count)
    with torch.no_grad():
        wanted = teacher(x)
    made = F.log_softmax(student(x)[keep], -1)
    loss = F.kl_div(made, F.log_softmax(wanted[keep], -1), log_target=True, reduction="sum")
    optimizer.zero_grad()
    (loss * world / count).backward()
    optimizer.step()
"""


def test_a_teacher(tmp_path):
    (tmp_path / "script.py").write_text(_SCRIPT)
    trace, _ = recorded(tmp_path, "--world", 4, "script.py")
    kinds = {one["name"]: one["type"] for one in trace["params"]}
    assert kinds["teacher.norm1.bias"] == {"dp": "I"}
    assert proved(tmp_path / "step.spmd.json") == {"dp": 2}
