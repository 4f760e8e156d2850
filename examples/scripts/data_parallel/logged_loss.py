"""torchrun --nproc-per-node 8 logged_loss.py"""

import os

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def log(step, loss, rank):
    mean = loss.detach().clone()
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    if rank == 0:
        print(f"step {step}: loss {mean.item():.4f}")


def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(100):
        generator = torch.Generator().manual_seed(1000 * step + rank)
        x = torch.randn(8, 16, generator=generator).to(device)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), x[:, :4])
        loss.backward()
        average_gradients(model)
        optimizer.step()
        log(step, loss, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
