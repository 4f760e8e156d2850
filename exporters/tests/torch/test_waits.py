"""What collectives give is there when it is used, also where nobody waits for it and in the step
that is recorded: what all ranks say of each other is what they have computed."""

from traces import recorded

_SCRIPT = """
import torch, torch.distributed as dist
import torch.distributed._functional_collectives as functional
dist.init_process_group("gloo")
rank, world, group = dist.get_rank(), dist.get_world_size(), dist.group.WORLD
probe = torch.full((1,), float(rank))
dist.all_reduce(probe)
moves = float(probe) == 1  # 0 + 1, not where a rank runs by itself
torch.manual_seed(0)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
all_of = [torch.randn(64, 64, generator=torch.Generator().manual_seed(n)) for n in range(world)]
total, mine = sum(all_of), slice(rank * 64 // world, (rank + 1) * 64 // world)
for step in range(3):
    optimizer.zero_grad()
    own = all_of[rank] * 1.0
    for made, wanted in (
        (functional.all_reduce(own, "sum", group), total),
        (functional.all_reduce_coalesced([own, own], "sum", group)[1], total),
        (functional.all_gather_tensor(own, 0, group), torch.cat(all_of)),
        (functional.reduce_scatter_tensor(own, "sum", 0, group), total[mine]),
        (functional.broadcast(own, 1, group), all_of[1]),
        (functional.all_to_all_single(own, None, None, group), torch.cat([x[mine] for x in all_of])),
    ):
        worst = float((made * 1.0 - wanted).abs().max())
        assert not moves or worst < 1e-4, (step, wanted.shape, worst)
    model(own).square().mean().backward()
    optimizer.step()
"""


def test_results_are_there_when_they_are_used(tmp_path):
    (tmp_path / "script.py").write_text(_SCRIPT)
    _, said = recorded(tmp_path, "--world", 2, "script.py")
    assert "unknown" not in said
