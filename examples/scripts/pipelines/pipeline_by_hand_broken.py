"""torchrun --nproc-per-node 4 pipeline_by_hand_broken.py"""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

DIM, BATCH, MICRO = 32, 4, 4


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = f"cuda:{os.environ['LOCAL_RANK']}"
    torch.cuda.set_device(device)
    first, last = rank == 0, rank == world - 1
    torch.manual_seed(rank)
    stage = nn.Sequential(nn.Linear(DIM, DIM), nn.GELU(), nn.Linear(DIM, DIM)).to(device)
    optimizer = torch.optim.AdamW(stage.parameters(), lr=1e-3)
    data = torch.Generator(device).manual_seed(
        7
    )  # the first stage has inputs, the last one targets
    for step in range(100):
        optimizer.zero_grad()
        kept, losses = [], []
        for _ in range(MICRO):
            sample = torch.randn(2, BATCH, DIM, generator=data, device=device)
            if first:
                x = sample[0]
            else:
                x = torch.empty(BATCH, DIM, device=device)
                dist.recv(x, rank - 1)
                x.requires_grad_()
            y = stage(x)
            if last:
                y = F.mse_loss(y, sample[1]) / MICRO
                losses.append(y.detach())
            else:
                dist.send(y.detach(), rank + 1)
            kept.append((x, y))
        for x, y in kept:
            if last:
                y.backward()
            else:
                grad = torch.empty_like(y)
                dist.recv(grad, rank + 1)
                y.sum().backward()
            if not first:
                dist.send(x.grad, rank - 1)
        optimizer.step()
        if last:
            print(step, torch.stack(losses).sum().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
