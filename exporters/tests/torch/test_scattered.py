"""Shards whose gradients are scattered, with averages of their own: the same step is recorded with
collectives that move data and with such that do not."""

from traces import linted

_SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

class Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx, shard):
        whole = shard.new_empty(shard.numel() * world)
        dist.all_gather_into_tensor(whole, shard.contiguous())
        return whole

    @staticmethod
    def backward(ctx, gradient):
        shard = gradient.new_empty(gradient.numel() // world)
        dist.reduce_scatter_tensor(shard, gradient.contiguous())
        return shard / world

torch.manual_seed(0)
wholes = [torch.randn(8, 8) * 0.3, torch.randn(8, 8) * 0.3]
shards = [torch.nn.Parameter(one.flatten().chunk(world)[rank].clone()) for one in wholes]
averages = {name: one.detach().clone() for name, one in zip("ab", shards)}
optimizer = torch.optim.SGD(shards, lr=0.1, momentum=0.9)
drawn = torch.Generator().manual_seed(rank)
for step in range(4):
    x = torch.randn(6, 8, generator=drawn)
    for shard in shards:
        x = torch.tanh(x @ Whole.apply(shard).view(8, 8))
    optimizer.zero_grad()
    x.square().mean().backward()
    optimizer.step()
    for average, shard in zip(averages.values(), shards):
        average.lerp_(shard.detach(), 0.2)
"""


def test_all_gradients_of_scattered_shards_are_proved(tmp_path):
    done = linted(tmp_path, _SCRIPT, "--min-proof=100")
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"warnings": 0' in done.stdout


def test_a_sum_for_the_average_is_found(tmp_path):
    done = linted(tmp_path, _SCRIPT.replace("return shard / world", "return shard"))
    assert "scale-mismatch" in done.stdout, done.stdout + done.stderr
