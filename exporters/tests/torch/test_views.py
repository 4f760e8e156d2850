"""Views between layouts: what is derived is carried out and compared with what torch has."""

import random

import pytest
import torch

from spmd_trace.torch import views
from spmd_trace.torch.values import ValueTable


def _random_view(draw: random.Random, tensor: torch.Tensor) -> torch.Tensor:
    """Some view of a tensor by an operation of torch."""
    dims = list(range(tensor.dim()))
    draw.shuffle(dims)
    choices = [lambda: tensor.permute(dims), lambda: tensor.unsqueeze(draw.randint(0, len(dims)))]
    choices.append(lambda: tensor.view(-1, *tensor.shape[2:]))
    choices.append(lambda: tensor[..., : max(1, tensor.shape[-1] - 1)])
    choices.append(lambda: tensor.unflatten(0, (-1, 2)))
    choices.append(lambda: tensor.expand([3 if n == 1 else n for n in tensor.shape]))
    try:
        return draw.choice(choices)()
    except RuntimeError:  # dimensions that cannot be merged
        return tensor


@pytest.mark.parametrize("seed", range(200))
def test_derived_views_are_those_of_torch(seed):
    draw = random.Random(seed)
    shape = [draw.choice([1, 2, 3, 4]) for _ in range(draw.randint(1, 4))]
    storage = torch.arange(512.0)
    base = storage[draw.randint(0, 3) :][: torch.Size(shape).numel()].view(shape)
    if draw.random() < 0.5:
        base = base.permute(draw.sample(range(len(shape)), len(shape)))
    view = base
    for _ in range(draw.randint(0, 3)):
        view = _random_view(draw, view)
    steps = views.derive(views.of(base), views.of(view))
    assert steps is not None
    made = [base, *views.carry_out(base, steps)]
    assert torch.equal(made[-1], view)
    # The steps mean the same of a copy, which knows nothing of the storage.
    copy = base.contiguous().clone()
    for name, words in steps:
        if name == "aten.permute.default":
            copy = copy.permute(words["dims"])
        elif name == "aten.expand.default":
            copy = copy.expand(words["size"])
        else:
            dense = copy.reshape(-1)
            if name == "aten.view.default":
                copy = dense.view(words["size"])
            elif name == "aten.slice.Tensor":
                copy = dense[words["start"] : words["end"]]
            else:
                copy = dense.as_strided(*words.values())
    assert torch.equal(copy, view)


def test_one_permutation_is_enough():
    weight = torch.ones(5, 3)
    steps = views.derive(views.of(weight), views.of(weight.t()))
    assert steps == [("aten.permute.default", {"dims": [1, 0]})]
    assert views.derive(views.of(weight), views.of(weight)) == []


def test_strides_are_not_counted_over_gaps():
    whole = torch.ones(5, 3)
    assert views.derive(views.of(whole[:, :2]), views.of(whole[:, 0])) is None


@pytest.mark.parametrize("seed", range(100))
def test_runs_of_a_buffer_hold_all_of_it(seed):
    draw = random.Random(seed)
    flat = torch.arange(40.0)
    tensor = flat[draw.randint(0, 4) : draw.randint(30, 40)]
    spans, keys = [], []
    start = tensor.storage_offset()
    while start + 6 <= tensor.storage_offset() + len(tensor):
        part = flat[start : start + 6].view(draw.choice([(6,), (2, 3)]))
        spans.append(ValueTable.span(part))
        keys.append(ValueTable.key(part))
        start += draw.choice([6, 6, 8])
    inner = flat[start - 6 :][1:3]
    if spans and draw.random() < 0.5 and spans[-1][1] >= ValueTable.span(inner)[1]:
        spans.append(ValueTable.span(inner))
        keys.append(ValueTable.key(inner))
    whole, pieces = views.runs(tensor, ValueTable.span(tensor), list(zip(spans, keys)))
    assert torch.equal(whole, tensor)
    assert torch.equal(torch.cat([piece for piece, _ in pieces]), tensor)
    assert sum(len(piece) for piece, known in pieces if known) == 6 * sum(
        high - low == 24 for low, high in spans
    )


def test_parts_that_overlap_or_have_gaps_are_no_runs():
    flat = torch.arange(12.0)
    parts = {
        "overlap": [flat[0:4], flat[2:6]],
        "gaps": [flat.view(3, 4)[:, 1]],
        "another type": [flat.view(torch.int32)[0:4]],
        "more": [flat[0:12]],
    }
    for name, views_of_it in parts.items():
        found = [(ValueTable.span(one), ValueTable.key(one)) for one in views_of_it]
        tensor = flat[:8] if name == "more" else flat
        assert views.runs(tensor, ValueTable.span(tensor), found) is None, name
