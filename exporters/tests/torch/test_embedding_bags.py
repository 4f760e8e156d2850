"""Bags that are rows are lookups and their means; others stay what they are."""

import pytest
import torch
from spmd_trace.torch.frameworks import embedding_bags
from torch.nn import functional


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_the_same_is_computed(mode):
    torch.manual_seed(0)
    ids = torch.randint(0, 7, (3, 5))
    results = []
    for taken_apart in (False, True):
        weight = torch.arange(28.0).reshape(7, 4).requires_grad_()
        if taken_apart:
            with embedding_bags.on_cpu():
                bags = functional.embedding_bag(ids, weight, mode=mode)
        else:
            bags = functional.embedding_bag(ids, weight, mode=mode)
        bags.square().sum().backward()
        results.append((bags.detach(), weight.grad, "EmbeddingBag" in bags.grad_fn.name()))
    (one, gradient, _), (other, other_gradient, whole) = results
    assert torch.allclose(one, other) and torch.allclose(gradient, other_gradient)
    assert whole == (mode == "max")


def test_lists_and_weights_stay():
    weight = torch.randn(7, 4, requires_grad=True)
    ids, starts = torch.tensor([1, 2, 3, 4]), torch.tensor([0, 3])
    with embedding_bags.on_cpu():
        assert "EmbeddingBag" in functional.embedding_bag(ids, weight, starts).grad_fn.name()
        padded = functional.embedding_bag(ids[None], weight, padding_idx=1)
        assert "EmbeddingBag" in padded.grad_fn.name()
