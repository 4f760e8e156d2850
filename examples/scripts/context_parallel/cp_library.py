"""torchrun --nproc-per-node 4 cp_library.py"""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel

DIM, HEADS, LENGTH, BATCH = 32, 4, 64, 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.out = nn.Linear(DIM, DIM)

    def forward(self, x):
        b, length, _ = x.shape
        qkv = self.qkv(self.norm(x)).view(b, length, 3, HEADS, DIM // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).flatten(2))


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("cp",))
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block()).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(100):
        torch.manual_seed(step)  # all ranks have the whole batch, and cut it along the sequence
        x = torch.randn(BATCH, LENGTH, DIM, device="cuda")
        target = torch.randn(BATCH, LENGTH, DIM, device="cuda")
        with context_parallel(mesh, buffers=[x, target], buffer_seq_dims=[1, 1]):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), target)
            loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
        optimizer.step()
        if dist.get_rank() == 0:
            print(step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
