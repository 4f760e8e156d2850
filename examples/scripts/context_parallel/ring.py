"""torchrun --nproc-per-node 8 ring.py"""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


def shift(tensors):
    """Sends tensors to the next rank, and gives those of the rank before."""
    rank, world = dist.get_rank(), dist.get_world_size()
    tensors = [tensor.contiguous() for tensor in tensors]
    received = [torch.empty_like(tensor) for tensor in tensors]
    calls = []
    for tensor, buffer in zip(tensors, received):
        calls.append(dist.P2POp(dist.isend, tensor, (rank + 1) % world))
        calls.append(dist.P2POp(dist.irecv, buffer, (rank - 1) % world))
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    return received


class Shift(torch.autograd.Function):
    """The gradient goes the other way round: world - 1 steps on."""

    @staticmethod
    def forward(ctx, tensor):
        return shift([tensor])[0]

    @staticmethod
    def backward(ctx, gradient):
        for _ in range(dist.get_world_size() - 1):
            (gradient,) = shift([gradient])
        return gradient


class RingAttention(nn.Module):
    """Each rank has a part of every sequence, and sees the keys and values of all parts in turn."""

    def __init__(self, dim):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(dim, dim, bias=False) for _ in range(3))

    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        top, bottom = torch.zeros_like(q), torch.zeros_like(q[..., :1])
        for hop in range(dist.get_world_size()):
            weights = torch.sigmoid(q @ k.transpose(1, 2) / q.shape[-1] ** 0.5)
            top, bottom = top + weights @ v, bottom + weights.sum(-1, keepdim=True)
            if hop < dist.get_world_size() - 1:
                k, v = Shift.apply(k), Shift.apply(v)
        return top / bottom


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), RingAttention(16), nn.Linear(16, 6)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(100):
        generator = torch.Generator().manual_seed(step)
        sequence = torch.randn(4, 8 * world, 6, generator=generator)
        x = sequence.chunk(world, 1)[rank].to(device)
        loss = F.mse_loss(model(x), x.cumsum(1), reduction="sum") / sequence.numel()
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
