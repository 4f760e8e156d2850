import torch
import torch.distributed as dist


def forward(h, w, v, tp_group):
    y = torch.nn.functional.gelu(h @ w)
    return y + v


def clip(grads, tp_group):
    square = sum(grads)
    return square.sqrt()
