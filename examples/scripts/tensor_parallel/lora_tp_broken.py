"""torchrun --nproc-per-node 4 lora_tp_broken.py"""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)


class FeedForward(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.up, self.down = nn.Linear(dim, hidden, bias=False), nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self, dim=32, layers=2):
        super().__init__()
        self.layers = nn.ModuleList(FeedForward(dim, 64) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def main():
    dist.init_process_group("nccl")
    device = f"cuda:{os.environ['LOCAL_RANK']}"
    torch.cuda.set_device(device)
    tp = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("tp",))
    torch.manual_seed(dist.get_rank())
    config = LoraConfig(r=4, lora_alpha=8, target_modules=["up"], lora_dropout=0.0)
    model = get_peft_model(Model(), config).to(device)
    for layer in model.base_model.model.layers:
        # Only what is frozen is cut: the wide matrices, and B of the adapter with them.
        plan = {"up.base_layer": ColwiseParallel(), "up.lora_B.default": ColwiseParallel()}
        plan["down"] = RowwiseParallel()
        parallelize_module(layer, tp, plan)
    trained = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3, foreach=False)
    for step in range(100):
        torch.manual_seed(step)  # the same batch on every rank
        x = torch.randn(8, 32, device=device)
        loss = F.mse_loss(model(x), x.roll(1, 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
