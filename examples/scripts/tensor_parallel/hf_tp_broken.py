"""torchrun --nproc-per-node 4 hf_tp_broken.py CHECKPOINT"""

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from transformers import AutoModelForCausalLM


def main():
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("tp",))
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], tp_plan="auto", device_mesh=mesh)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
    for step in range(100):
        torch.manual_seed(1000 * step + dist.get_rank())
        tokens = torch.randint(model.config.vocab_size, (2, 16), device=device)
        loss = model(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
