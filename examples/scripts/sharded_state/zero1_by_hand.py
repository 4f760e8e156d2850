"""torchrun --nproc-per-node 8 zero1_by_hand.py"""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters


class ZeroOptimizer:
    """AdamW whose state is split over the ranks."""

    def __init__(self, params, lr):
        self.params = list(params)
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        with torch.no_grad():
            flat = parameters_to_vector(self.params)
        self.numel = flat.numel()
        self.padding = -self.numel % self.world
        flat = torch.nn.functional.pad(flat, (0, self.padding))
        self.shard = nn.Parameter(flat.chunk(self.world)[self.rank].clone())
        self.inner = torch.optim.AdamW([self.shard], lr=lr)

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    @torch.no_grad()
    def step(self):
        grads = torch.cat([p.grad.reshape(-1) for p in self.params])
        grads = torch.nn.functional.pad(grads, (0, self.padding))
        mine = torch.empty_like(self.shard)
        dist.reduce_scatter_tensor(mine, grads, op=dist.ReduceOp.SUM)
        self.shard.grad = mine / self.world
        self.inner.step()
        flat = torch.empty(self.numel + self.padding, device=mine.device)
        dist.all_gather_into_tensor(flat, self.shard.data)
        vector_to_parameters(flat[: self.numel], self.params)


def main():
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 50), nn.Tanh(), nn.Linear(50, 1)).to(local_rank)
    for p in model.parameters():
        dist.broadcast(p.data, src=0)
    optimizer = ZeroOptimizer(model.parameters(), lr=1e-2)
    torch.manual_seed(100 + dist.get_rank())
    for step in range(50):
        x = torch.randn(64, 20, device="cuda")
        y = x.sum(1, keepdim=True)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(step, float(loss))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
