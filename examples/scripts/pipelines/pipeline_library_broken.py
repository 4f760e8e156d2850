"""torchrun --nproc-per-node 4 pipeline_library_broken.py"""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

DIM, BATCH, MICRO = 32, 16, 4


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    torch.manual_seed(rank)
    block = nn.Sequential(nn.Linear(DIM, DIM), nn.GELU(), nn.Linear(DIM, DIM)).to(device)
    stage = PipelineStage(block, rank, world, device)
    schedule = Schedule1F1B(stage, n_microbatches=MICRO, loss_fn=F.mse_loss)
    optimizer = torch.optim.AdamW(block.parameters(), lr=1e-3)
    for step in range(100):
        torch.manual_seed(step)
        x, y = torch.randn(2, BATCH, DIM, device=device)
        losses = []
        if rank == 0:
            schedule.step(x)
        elif rank == world - 1:
            schedule.step(target=y, losses=losses)
            print(step, torch.stack(losses).mean().item())
        else:
            schedule.step()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
