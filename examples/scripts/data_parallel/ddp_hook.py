"""torchrun --nproc-per-node 8 ddp_hook.py"""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel


def reduce_in_bf16(group, bucket):
    world = dist.get_world_size(group)
    small = bucket.buffer().to(torch.bfloat16).div_(world)
    future = dist.all_reduce(small, group=group, async_op=True).get_future()

    def decompress(future):
        return bucket.buffer().copy_(future.value()[0])

    return future.then(decompress)


def main():
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Linear(64, 5)).cuda()
    model = DistributedDataParallel(model, device_ids=[local_rank])
    model.register_comm_hook(dist.group.WORLD, reduce_in_bf16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(100):
        torch.manual_seed(1000 * step + dist.get_rank())
        x = torch.randn(16, 20).cuda()
        loss = nn.functional.cross_entropy(model(x), x[:, :5].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 10 == 0:
            print(step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
