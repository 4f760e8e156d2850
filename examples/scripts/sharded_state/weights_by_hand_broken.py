"""torchrun --nproc-per-node 8 weights_by_hand_broken.py"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F


class Shards:
    """This rank's rows of every weight, in f32, with the momentum of each."""

    def __init__(self, weights, lr, beta=0.9):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.lr, self.beta = lr, beta
        self.rows = {name: w.chunk(self.world)[self.rank].clone() for name, w in weights.items()}
        self.momentum = {name: torch.zeros_like(rows) for name, rows in self.rows.items()}

    def gathered(self):
        """The weights of one step, in bf16."""
        weights = {}
        for name, rows in self.rows.items():
            rows = rows.bfloat16()
            whole = rows.new_empty(rows.shape[0] * self.world, *rows.shape[1:])
            dist.all_gather_into_tensor(whole, rows)
            weights[name] = whole.requires_grad_()
        return weights

    def step(self, weights):
        for name, rows in self.rows.items():
            grad = weights[name].grad.float().chunk(self.world)[self.rank]
            self.momentum[name].mul_(self.beta).add_(grad)
            rows.sub_(self.momentum[name], alpha=self.lr)


def initial_weights(width, hidden, classes):
    draw = torch.Generator().manual_seed(0)
    sizes = {"first": (hidden, width), "second": (hidden, hidden), "head": (classes, hidden)}
    return {name: torch.randn(n, m, generator=draw) / m**0.5 for name, (n, m) in sizes.items()}


def loss_of(weights, x, y):
    h = torch.tanh(x.bfloat16() @ weights["first"].T)
    h = torch.tanh(h @ weights["second"].T)
    return F.cross_entropy((h @ weights["head"].T).float(), y)


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    weights = initial_weights(32, 64, 8)
    shards = Shards({name: w.cuda() for name, w in weights.items()}, lr=0.1)
    torch.manual_seed(100 + dist.get_rank())
    for step in range(50):
        x = torch.randn(32, 32, device="cuda")
        y = x[:, :8].argmax(1)
        weights = shards.gathered()
        loss = loss_of(weights, x, y)
        loss.backward()
        shards.step(weights)
        if dist.get_rank() == 0:
            print(step, float(loss))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
