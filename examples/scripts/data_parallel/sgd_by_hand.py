"""torchrun --nproc-per-node 8 sgd_by_hand.py"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F


def init(sizes, device):
    generator = torch.Generator().manual_seed(0)
    params = {}
    for i, (n, m) in enumerate(zip(sizes, sizes[1:])):
        params[f"w{i}"] = torch.randn(n, m, generator=generator) / n**0.5
        params[f"b{i}"] = torch.zeros(m)
    return {name: p.to(device).requires_grad_() for name, p in params.items()}


def forward(params, x):
    layers = len(params) // 2
    for i in range(layers):
        x = x @ params[f"w{i}"] + params[f"b{i}"]
        x = torch.tanh(x) if i < layers - 1 else x
    return x


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    params = init([8, 32, 3], device)
    velocity = {name: torch.zeros_like(p) for name, p in params.items()}
    for step in range(100):
        generator = torch.Generator().manual_seed(1000 * step + rank)
        x = torch.randn(16, 8, generator=generator).to(device)
        y = x[:, :3].argmax(1)
        loss = F.cross_entropy(forward(params, x), y)
        grads = torch.autograd.grad(loss, list(params.values()))
        with torch.no_grad():
            for (name, p), grad in zip(params.items(), grads):
                dist.all_reduce(grad)
                velocity[name].mul_(0.9).add_(grad / world)
                p.sub_(0.05 * velocity[name])
        if rank == 0 and step % 10 == 0:
            print(step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
