"""torchrun --nproc-per-node 4 vocab_by_hand.py"""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Copy(torch.autograd.Function):
    """Every rank goes on with the same value; the gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad


class Sum(torch.autograd.Function):
    """Adds up what the ranks have; each gets the whole gradient."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class Embedding(nn.Module):
    """The rows of a table that belong to this rank."""

    def __init__(self, vocab, dim):
        super().__init__()
        self.rows = vocab // dist.get_world_size()
        self.first = dist.get_rank() * self.rows
        whole = torch.randn(vocab, dim)
        self.weight = nn.Parameter(whole[self.first : self.first + self.rows].clone())

    def forward(self, tokens):
        outside = (tokens < self.first) | (tokens >= self.first + self.rows)
        local = (tokens - self.first).masked_fill(outside, 0)
        found = F.embedding(local, self.weight)
        return Sum.apply(found.masked_fill(outside.unsqueeze(-1), 0.0))


class CrossEntropy(nn.Module):
    """Of logits that are cut along the vocabulary."""

    def __init__(self, rows, first):
        super().__init__()
        self.rows, self.first = rows, first

    def forward(self, logits, target):
        top = logits.detach().amax(dim=-1)
        dist.all_reduce(top, op=dist.ReduceOp.MAX)
        logits = logits - top.unsqueeze(-1)
        outside = (target < self.first) | (target >= self.first + self.rows)
        local = (target - self.first).masked_fill(outside, 0)
        own = logits.gather(-1, local.unsqueeze(-1)).squeeze(-1).masked_fill(outside, 0.0)
        log_sum = Sum.apply(logits.exp().sum(dim=-1)).log()
        return (log_sum - Sum.apply(own)).mean()


class Model(nn.Module):
    def __init__(self, vocab=128, dim=32):
        super().__init__()
        self.embed = Embedding(vocab, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.loss = CrossEntropy(self.embed.rows, self.embed.first)

    def forward(self, tokens, target):
        x = self.embed(tokens)
        x = x + self.down(F.gelu(self.up(x)))
        logits = F.linear(Copy.apply(x), self.embed.weight)  # the table is tied
        return self.loss(logits, target)


def main():
    dist.init_process_group("nccl")
    device = f"cuda:{os.environ['LOCAL_RANK']}"
    torch.cuda.set_device(device)
    torch.manual_seed(1)  # all ranks make the same table and take their rows of it
    model = Model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(100):
        torch.manual_seed(step)  # the same batch on every rank
        tokens = torch.randint(128, (4, 17), device=device)
        loss = model(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
