"""Parameters that FSDP cuts around tensor parallelism, and state of the optimizer that is still an
addend."""

from traces import recorded

_SCRIPT = """
import torch, torch.distributed as dist, torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import *
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
torch.manual_seed(0)
model = nn.Sequential()
model.norm, model.up, model.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8, bias=False)
parallelize_module(model, mesh["tp"], {
    "norm": SequenceParallel(),
    "up": ColwiseParallel(input_layouts=Shard(1)),
    "down": RowwiseParallel(output_layouts=Shard(1)),
})
CUT
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(4):
    draws = torch.Generator().manual_seed(step)
    x = torch.randn(4, 6, 8, generator=draws)DP.chunk(2, 1)[mesh.get_local_rank("tp")]
    optimizer.zero_grad()
    model(x).square().sum().backward()
    optimizer.step()
"""


def _trace(folder, **words: str) -> dict:
    script = _SCRIPT
    for word, text in words.items():
        script = script.replace(word, text)
    (folder / "train.py").write_text(script)
    return recorded(folder, "--world", 4, "train.py")[0]


def test_a_shard_of_a_shard_has_its_place(tmp_path):
    part = '.chunk(2)[mesh.get_local_rank("dp")]'
    trace = _trace(tmp_path, CUT='fully_shard(model, mesh=mesh["dp"])', DP=part)
    found = {one["name"]: one for one in trace["params"] if one["role"] == "param"}
    assert found["up.weight"]["spec"] == [["tp", "dp"], None]  # FSDP cuts what each rank has
    assert found["up.weight"]["gshape"] == [16, 8]
    assert found["down.weight"]["spec"] == ["dp", "tp"]


def test_momentum_of_a_pending_gradient_is_pending(tmp_path):
    trace = _trace(tmp_path, CUT="", DP="")
    kept = {one["name"]: one["type"]["tp"] for one in trace["params"] if one["role"] == "opt_state"}
    assert kept["norm.weight.momentum_buffer"] == "P"
    assert kept["up.weight.momentum_buffer"] == "V"
