"""torchrun --nproc-per-node 4 ulysses_broken.py"""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


def exchange(x, cut, joined):
    """Gives each rank its part of dimension `cut`, with all of dimension `joined`."""
    pieces = [one.contiguous() for one in x.chunk(dist.get_world_size(), dim=cut)]
    got = [torch.empty_like(one) for one in pieces]
    dist.all_to_all(got, pieces)
    return torch.cat(got, dim=joined)


class Attention(nn.Module):
    """Tokens are cut over ranks everywhere but in here, where heads are."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.out = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        batch, length, dim = x.shape
        shape = (batch, length, self.heads, dim // self.heads)
        q, k, v = (exchange(one(x).view(shape), 2, 1) for one in (self.q, self.k, self.v))
        q, k, v = (one.transpose(1, 2) for one in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        return self.out(exchange(y, 1, 2).reshape(batch, length, dim))


class Model(nn.Module):
    def __init__(self, dim=32, heads=8):
        super().__init__()
        self.embed = nn.Embedding(64, dim)
        self.norm, self.attention = nn.LayerNorm(dim), Attention(dim, heads)
        self.head = nn.Linear(dim, 64)

    def forward(self, tokens):
        x = self.embed(tokens)
        return self.head(x + self.attention(self.norm(x)))


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = f"cuda:{os.environ['LOCAL_RANK']}"
    torch.cuda.set_device(device)
    torch.manual_seed(0)
    model = Model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(100):
        torch.manual_seed(step)  # one batch, of which each rank has its part of the tokens
        tokens = torch.randint(64, (2, 64 * world + 1), device=device)
        mine = tokens[:, :-1].chunk(world, dim=1)[rank]
        target = tokens[:, 1:].chunk(world, dim=1)[rank]
        loss = F.cross_entropy(model(mine).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
                parameter.grad.div_(world)
        optimizer.step()
        if rank == 0:
            print(step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
