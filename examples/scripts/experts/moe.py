"""torchrun --nproc-per-node 4 moe.py"""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Exchange(torch.autograd.Function):
    """Block i of the rows goes to rank i; gradients go the same way back."""

    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x.contiguous())
        return out

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty_like(grad)
        dist.all_to_all_single(out, grad.contiguous())
        return out


class Experts(nn.Module):
    """One expert on each rank; a router sends each token to one of them."""

    def __init__(self, dim, capacity):
        super().__init__()
        self.world, self.capacity = dist.get_world_size(), capacity
        self.router = nn.Linear(dim, self.world, bias=False)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        score, expert = self.router(x).softmax(dim=-1).max(dim=-1)
        chosen = F.one_hot(expert, self.world)
        # The place of each token in the queue of its expert; those that come too late are left out.
        place = (chosen.cumsum(dim=0) * chosen).sum(dim=-1) - 1
        kept = (place < self.capacity).to(x.dtype)
        slot = F.one_hot(place.clamp(max=self.capacity - 1), self.capacity).to(x.dtype)
        dispatch = chosen.to(x.dtype).unsqueeze(-1) * slot.unsqueeze(1) * kept.view(-1, 1, 1)
        queues = torch.einsum("tec,td->ecd", dispatch, x)
        tokens = Exchange.apply(queues.flatten(0, 1))
        done = Exchange.apply(self.down(F.gelu(self.up(tokens))))
        done = done.view(self.world, self.capacity, -1)
        return x + torch.einsum("tec,ecd->td", dispatch, done) * score.unsqueeze(-1)


class Model(nn.Module):
    def __init__(self, dim=32, layers=2):
        super().__init__()
        self.embed = nn.Embedding(64, dim)
        self.layers = nn.ModuleList(Experts(dim, capacity=8) for _ in range(layers))
        self.head = nn.Linear(dim, 64)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = f"cuda:{os.environ['LOCAL_RANK']}"
    torch.cuda.set_device(device)
    torch.manual_seed(0)
    model = Model().to(device)
    torch.manual_seed(1 + rank)
    for layer in model.layers:  # each rank has an expert of its own
        layer.up.reset_parameters()
        layer.down.reset_parameters()
    experts = {
        id(p) for one in model.layers for p in (*one.up.parameters(), *one.down.parameters())
    }
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(100):
        tokens = torch.randint(64, (17,), device=device)
        loss = F.cross_entropy(model(tokens[:-1]), tokens[1:])
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            if id(parameter) not in experts:  # those have seen the tokens of all ranks
                dist.all_reduce(parameter.grad)
            parameter.grad.div_(world)
        optimizer.step()
        if rank == 0:
            print(step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
