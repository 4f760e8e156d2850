"""Heads of keys and values that several heads of queries share, cut by heads."""

import pytest
from traces import COPY, SUM, linted

_SCRIPT = (
    """
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
WIDTH, HEADS, KEYS, LENGTH = 32, 8, 4, 6
each, n, m = WIDTH // HEADS, HEADS // world, max(KEYS // world, 1)
"""
    + COPY
    + SUM
    + """
def piece(out, into, dim):
    whole = torch.randn(out, into) / 6
    return nn.Parameter(whole.chunk(world, dim)[rank].clone() if out > each else whole)

torch.manual_seed(0)
wq, wo = piece(WIDTH, WIDTH, 0), piece(WIDTH, WIDTH, 1)
wk, wv = (piece(KEYS * each, WIDTH, 0) for _ in range(2))
embedding, head = nn.Embedding(20, WIDTH), nn.Linear(WIDTH, 20)
parameters = [wq, wk, wv, wo, *embedding.parameters(), *head.parameters()]
optimizer = torch.optim.AdamW(parameters, 1e-3)
for _ in range(3):
    tokens = torch.randint(20, (2, LENGTH + 1))
    x = embedding(tokens[:, :-1])
    h = Copy.apply(x)
    q, k, v = (F.linear(h, w).view(2, LENGTH, -1, each) for w in (wq, wk, wv))
    k, v = (REPEAT for a in (k, v))
    q, k, v = (a.transpose(1, 2) for a in (q, k, v))
    y = ATTEND
    x = x + Sum.apply(F.linear(y.transpose(1, 2).reshape(2, LENGTH, -1), wo))
    loss = F.cross_entropy(head(x).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    for w in (wk, wv) if KEYS == 1 else ():
        dist.all_reduce(w.grad)
    optimizer.step()
"""
)
_REPEAT = {
    "repeated": "a.repeat_interleave(n // m, 2)",
    "expanded": "a[:, :, :, None].expand(2, LENGTH, m, n // m, each).reshape(2, LENGTH, n, each)",
}
_ATTEND = {
    "fused": "F.scaled_dot_product_attention(q, k, v, is_causal=True)",
    "by hand": "(q @ k.transpose(-2, -1) / each**0.5).softmax(-1) @ v",
}


@pytest.mark.parametrize(
    "repeat,attend,keys",
    [
        ("repeated", "fused", 4),
        ("expanded", "by hand", 4),
        ("repeated", "by hand", 1),
        ("expanded", "fused", 1),
    ],
)
def test_gradients_of_shared_heads_are_proved(tmp_path, repeat, attend, keys):
    script = _SCRIPT.replace("REPEAT", _REPEAT[repeat]).replace("ATTEND", _ATTEND[attend])
    script = script.replace("LENGTH = 32, 8, 4", f"LENGTH = 32, 8, {keys}")
    done = linted(tmp_path, script, "--min-proof=100")
    assert done.returncode == 0, done.stdout + done.stderr
