"""Views between layouts: what is derived is carried out and compared with what torch has."""

import random

import pytest
import torch

from spmd_trace.torch import views


def _random_view(draw: random.Random, tensor: torch.Tensor) -> torch.Tensor:
    """Some view of a tensor by an operation of torch."""
    dims = list(range(tensor.dim()))
    draw.shuffle(dims)
    choices = [lambda: tensor.permute(dims), lambda: tensor.unsqueeze(draw.randint(0, len(dims)))]
    choices.append(lambda: tensor.view(-1, *tensor.shape[2:]))
    choices.append(lambda: tensor[..., : max(1, tensor.shape[-1] - 1)])
    choices.append(lambda: tensor.unflatten(0, (-1, 2)))
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
