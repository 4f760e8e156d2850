"""Rows that a rank sends to others, as many as it has for each, and parameters that each rank has
made by itself."""

import json

import pytest

from traces import linted, recorded

# Rows by counts, and their gradients back.
_EXCHANGE = """
class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, received, sent):
        ctx.sizes = received, sent
        out = x.new_empty(sum(received), x.shape[1])
        dist.all_to_all_single(out, x, received, sent, async_op=True).wait()
        return out

    @staticmethod
    def backward(ctx, grad):
        received, sent = ctx.sizes
        out = grad.new_empty(sum(sent), grad.shape[1])
        dist.all_to_all_single(out, grad.contiguous(), sent, received)
        return out, None, None
"""
_SCRIPT = (
    """
import os, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
"""
    + _EXCHANGE
    + """
torch.manual_seed(0)
router = nn.Linear(8, world, bias=False)
torch.manual_seed(1 + rank)
expert = nn.Linear(8, 8, bias=False)
whole = torch.randn(8 * world, 8)
taken = nn.Parameter(whole.chunk(world)[rank].clone())
picked = nn.Parameter(whole[torch.arange(8) * world + rank])
handed = nn.Parameter(torch.empty(8, 8))
with torch.no_grad():
    handed.copy_(whole[rank * 8 : rank * 8 + 8])
weights = {"expert": expert.weight, "taken": taken, "picked": picked, "handed": handed}
model = nn.ModuleDict({"router": router, "expert": expert})
optimizer = torch.optim.SGD([router.weight, *weights.values()], lr=0.1)
for step in range(3):
    x = torch.randn(16, 8)
    score, chosen = router(x).softmax(-1).max(-1)
    order = chosen.argsort()
    counts = torch.bincount(chosen, minlength=world)
    theirs = torch.empty_like(counts)
    dist.all_to_all_single(theirs, counts)
    sent, received = counts.tolist(), theirs.tolist()
    done = expert(Exchange.apply(x[order], received, sent))
    back = Exchange.apply(done, sent, received)
    y = torch.zeros_like(x)
    y[order] = back
    y = y @ taken @ picked @ handed
    optimizer.zero_grad()
    (y * score.unsqueeze(-1)).square().mean().backward()
    dist.all_reduce(router.weight.grad)
    for weight in (router.weight, *weights.values()):
        weight.grad /= world
    optimizer.step()
"""
)


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("routed")
    (folder / "script.py").write_text(_SCRIPT)
    return recorded(folder, "--world", 2, "script.py")[0]


def test_functional_exchanges_are_by_counts_as_well(tmp_path):
    script = "import torch.distributed._functional_collectives as funcol\n" + _SCRIPT
    for sizes in ("received, sent", "sent, received"):
        for rows in ("x[order]", "done"):
            script = script.replace(
                f"Exchange.apply({rows}, {sizes})",
                f"funcol.all_to_all_single_autograd({rows}, {sizes}, dist.group.WORLD)",
            )
    (tmp_path / "train.py").write_text(script)
    trace, _ = recorded(tmp_path, "--world", 4, "train.py")
    exchanges = [op["kw"] for op in trace["ops"] if op["op"] == "all_to_all" and "kw" in op]
    sizes = [(kw["in_splits"], kw["out_splits"]) for kw in exchanges if "in_splits" in kw]
    assert len(sizes) == 3 and sizes[1] == sizes[0][::-1] and sizes[2] == sizes[0]


def test_an_exchange_names_the_tensors_that_say_how_many_rows_go_where(trace):
    exchanges = [op["kw"] for op in trace["ops"] if op["op"] == "all_to_all"]
    sizes = [(kw.get("in_splits"), kw.get("out_splits")) for kw in exchanges]
    sent, received = sizes[1]
    assert sizes == [(None, None), (sent, received), (received, sent), (sent, received)]
    assert sent and received and sent != received


def test_only_what_a_rank_has_made_in_its_own_extents_is_separate(trace):
    separate = {value["name"]: value.get("separate") for value in trace["params"]}
    own = {name for name, axes in separate.items() if axes == ["ranks"]}
    assert own == {"expert.weight"}


# Each rank applies its own experts to the tokens of all, and the sums go back to their ranks.
_GATHERED = """
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = x.new_empty(world * x.size(0), *x.shape[1:])
        dist.all_gather_into_tensor(out, x.contiguous())
        return out

    @staticmethod
    def backward(ctx, g):
        out = g.new_empty(g.size(0) // world, *g.shape[1:])
        dist.reduce_scatter_tensor(out, g.contiguous())
        return out

class Scatter(torch.autograd.Function):
    forward = staticmethod(lambda ctx, x: Gather.backward(ctx, x))
    backward = staticmethod(lambda ctx, g: Gather.forward(ctx, g))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(6, 4, bias=False)
        bank = [nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.Linear(8, 6)) for _ in range(4)]
        mine = range(rank * 4 // world, (rank + 1) * 4 // world)
        self.experts = nn.ModuleDict({str(one): bank[one] for one in mine})

    def forward(self, x):
        weights, tokens = Gather.apply(self.gate(x).softmax(-1)), Gather.apply(x)
        parts = [weights[:, int(e), None] * f(tokens) for e, f in self.experts.items()]
        return x + Scatter.apply(sum(parts))

torch.manual_seed(0)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
drawn = torch.Generator().manual_seed(100 + rank)
for step in range(4):
    x = torch.randn(5, 6, generator=drawn)
    loss = F.mse_loss(model(x), x.flip(1))
    optimizer.zero_grad()
    loss.backward()
    for name, p in model.named_parameters():
        if "experts" not in name:
            dist.all_reduce(p.grad)
        p.grad /= world
    optimizer.step()
"""


def test_experts_that_other_ranks_lack(tmp_path):
    done = linted(tmp_path, _GATHERED)
    assert json.loads(done.stdout)["findings"] == [], done.stdout + done.stderr


# Two experts on each rank; each token goes to two, and its parts come home weighted.
_TOP_TWO = (
    """
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
EACH, WIDTH = 2, 8
"""
    + _EXCHANGE
    + """
torch.manual_seed(0)
gate, head = nn.Linear(WIDTH, EACH * world, bias=False), nn.Linear(WIDTH, 4)
torch.manual_seed(1 + rank)
experts = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, 12), nn.ReLU(), nn.Linear(12, WIDTH)) for _ in range(EACH))
shared, own = [*gate.parameters(), *head.parameters()], list(experts.parameters())
optimizer = torch.optim.AdamW([*shared, *own], 1e-3)
draws = torch.Generator().manual_seed(50 + rank)
for step in range(3):
    x = torch.randn(12, WIDTH, generator=draws)
    y = torch.randint(0, 4, (12,), generator=draws)
    weight, chosen = gate(x).softmax(-1).topk(2, dim=-1)
    order = chosen.flatten().argsort(stable=True)
    counts = torch.bincount(chosen.flatten(), minlength=EACH * world)
    theirs = torch.empty_like(counts)
    dist.all_to_all_single(theirs, counts)
    sent, received = (n.view(world, -1).sum(1).tolist() for n in (counts, theirs))
    rows = Exchange.apply(x[order // 2], received, sent)
    which = torch.arange(EACH).repeat(world).repeat_interleave(theirs)
    done = torch.zeros_like(rows)
    for n, expert in enumerate(experts):
        mine = (which == n).nonzero().squeeze(1)
        done = done.index_add(0, mine, expert(rows[mine]))
    back = Exchange.apply(done, sent, received)
    back = back * WEIGHT.unsqueeze(1)
    mixed = torch.zeros_like(x).index_add(0, order // 2, back)
    loss = F.cross_entropy(head(x + mixed), y)
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    for p in SUMMED:
        dist.all_reduce(p.grad)
    for p in [*shared, *own]:
        p.grad /= world
    optimizer.step()
"""
)
_RIGHT = {"WEIGHT": "weight.flatten()[order]", "SUMMED": "shared"}


@pytest.mark.parametrize(
    "mistake,found,proved",
    [
        ({}, set(), 11),
        ({"SUMMED": "[*shared, *own]"}, {"copies-differ"}, 0),
        ({"SUMMED": "head.parameters()"}, {"copies-drift", "invariant-mixed"}, 0),
        # Rows that meet in another order are no finding, and nothing is proved of them.
        ({"WEIGHT": "weight.flatten()"}, set(), 0),
    ],
)
def test_several_experts_on_each_rank(mistake, found, proved, tmp_path):
    script = _TOP_TWO
    for word, text in (_RIGHT | mistake).items():
        script = script.replace(word, text)
    report = json.loads(linted(tmp_path, script).stdout)
    assert {one["name"] for one in report["findings"]} == found
    assert report["inputs"][0]["proved"]["ranks"] == proved
