"""torchrun --nnodes 64 --nproc-per-node 8 llama_broken.py --size 405b --tp 8"""

import argparse
import dataclasses
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)


@dataclasses.dataclass
class Config:
    dim: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    length: int


SIZES = {
    "tiny": Config(64, 128, 2, 8, 4, 256, 32),
    "8b": Config(4096, 14336, 32, 32, 8, 128256, 8192),
    "405b": Config(16384, 53248, 126, 128, 8, 128256, 8192),
}


def rotary(config, device):
    head = config.dim // config.heads
    steps = 1.0 / 500000.0 ** (torch.arange(0, head, 2, device=device).float() / head)
    angles = torch.outer(torch.arange(config.length, device=device).float(), steps)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    a, b = x.float().chunk(2, dim=-1)
    cos, sin = cos[None, :, None], sin[None, :, None]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).type_as(x)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.head = config.dim // config.heads
        kv = config.kv_heads * self.head
        self.wq = nn.Linear(config.dim, config.dim, bias=False)
        self.wk = nn.Linear(config.dim, kv, bias=False)
        self.wv = nn.Linear(config.dim, kv, bias=False)
        self.wo = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x, cos, sin):
        batch, length = x.shape[:2]
        # As many heads as this rank has.
        q = self.wq(x).view(batch, length, -1, self.head)
        k = self.wk(x).view(batch, length, -1, self.head)
        v = self.wv(x).view(batch, length, -1, self.head)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        times = q.size(2) // k.size(2)
        k, v = k.repeat_interleave(times, dim=2), v.repeat_interleave(times, dim=2)
        q, k, v = (one.transpose(1, 2) for one in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.w1 = nn.Linear(config.dim, config.hidden, bias=False)
        self.w2 = nn.Linear(config.hidden, config.dim, bias=False)
        self.w3 = nn.Linear(config.dim, config.hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.dim, eps=1e-5)
        self.attention = Attention(config)
        self.ffn_norm = nn.RMSNorm(config.dim, eps=1e-5)
        self.feed_forward = FeedForward(config)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.feed_forward(self.ffn_norm(x))


class Llama(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed = nn.Embedding(config.vocab, config.dim)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.dim, eps=1e-5)
        self.output = nn.Linear(config.dim, config.vocab, bias=False)

    def forward(self, tokens, cos, sin):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.output(self.norm(x))

    def init_weights(self):
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            elif isinstance(module, nn.RMSNorm):
                nn.init.ones_(module.weight)


def parallelize(model, mesh):
    tp, dp = mesh["tp"], mesh["dp"]
    rows = RowwiseParallel(output_layouts=Shard(1))
    plan = {
        "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    parallelize_module(model, tp, plan)
    whole = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    attention = PrepareModuleInput(
        input_layouts=(Shard(1), None, None), desired_input_layouts=(Replicate(), None, None)
    )
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        plan = {"attention_norm": SequenceParallel(), "ffn_norm": SequenceParallel()}
        plan |= {"attention": attention, "feed_forward": whole}
        for name in ("attention.wq", "attention.wk", "attention.wv"):
            plan[name] = ColwiseParallel()
        plan |= {"feed_forward.w1": ColwiseParallel(), "feed_forward.w3": ColwiseParallel()}
        plan |= {"attention.wo": rows, "feed_forward.w2": rows}
        parallelize_module(block, tp, plan)
        fully_shard(block, mesh=dp, mp_policy=policy)
    fully_shard(model, mesh=dp, mp_policy=policy)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--tp", type=int, default=2)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    config = SIZES[args.size]

    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    shape = (dist.get_world_size() // args.tp, args.tp)
    mesh = init_device_mesh("cuda", shape, mesh_dim_names=("dp", "tp"))

    torch.manual_seed(0)
    with torch.device("meta"):
        model = Llama(config)
    parallelize(model, mesh)
    model.to_empty(device=device)
    model.init_weights()
    optimizer = torch.optim.AdamW(model.parameters(), lr=8e-5, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=10)

    cos, sin = rotary(config, device)
    generator = torch.Generator(device).manual_seed(mesh["dp"].get_local_rank())
    for step in range(args.steps):
        shape = (args.batch, config.length + 1)
        tokens = torch.randint(config.vocab, shape, generator=generator, device=device)
        logits = model(tokens[:, :-1], cos, sin)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        grads = [p.grad.to_local() for p in model.parameters()]
        norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in grads]))
        for grad in grads:
            grad.mul_(torch.clamp(1.0 / (norm + 1e-6), max=1.0))
        optimizer.step()
        schedule.step()
        if dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.4f}, norm {norm.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
