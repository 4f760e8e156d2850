"""torchrun --nproc-per-node 8 megatron_by_hand.py --tp 4"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

tp_group = None
dp_group = None


def build_groups(tp):
    global tp_group, dp_group
    world, rank = dist.get_world_size(), dist.get_rank()
    for start in range(0, world, tp):
        ranks = list(range(start, start + tp))
        group = dist.new_group(ranks)
        if rank in ranks:
            tp_group = group
    for start in range(tp):
        ranks = list(range(start, world, tp))
        group = dist.new_group(ranks)
        if rank in ranks:
            dp_group = group


class CopyToTensorParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=tp_group)
        return grad


class ReduceFromTensorParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        dist.all_reduce(x, group=tp_group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class ColumnParallelLinear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        size = dist.get_world_size(tp_group)
        self.weight = nn.Parameter(torch.empty(outputs // size, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs // size))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x):
        return F.linear(CopyToTensorParallel.apply(x), self.weight, self.bias)


class RowParallelLinear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        size = dist.get_world_size(tp_group)
        self.weight = nn.Parameter(torch.empty(outputs, inputs // size))
        self.bias = nn.Parameter(torch.zeros(outputs))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x):
        y = F.linear(x, self.weight)
        return ReduceFromTensorParallel.apply(y) + self.bias


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up, self.down = ColumnParallelLinear(dim, 4 * dim), RowParallelLinear(4 * dim, dim)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def train_step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    replicas = dist.get_world_size(dp_group)
    for p in model.parameters():
        dist.all_reduce(p.grad, group=dp_group)
        p.grad /= replicas
    optimizer.step()
    return loss.detach()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tp", type=int, default=4)
    args = parser.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    build_groups(args.tp)
    tp_rank, dp_rank = dist.get_rank(tp_group), dist.get_rank(dp_group)

    torch.manual_seed(1000 + tp_rank)  # the shards differ, the replicas do not
    model = nn.Sequential(Block(32), Block(32)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(dp_rank)  # ranks of one tensor-parallel group see the same batch
    for step in range(100):
        x, y = torch.randn(16, 32).cuda(), torch.randn(16, 32).cuda()
        loss = train_step(model, optimizer, x, y)
        if dist.get_rank() == 0 and step % 10 == 0:
            print(step, loss.item())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
