"""The loss over a vocabulary, computed in chunks, against torch's over all logits."""

from itertools import product

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.precision import assert_same, in_single
from tfm_zoo.models.kernels import soft_capped
from tfm_zoo.models.losses import CHUNK, logits_loss, vocabulary_loss

pytestmark = pytest.mark.usefixtures("double")


@in_single()
def test_the_loss_is_summed_in_single_precision():
    """That of all logits at once, in every type, over more than one chunk; gradients too."""
    labels = torch.randint(0, 50, (1100,)).index_fill(0, torch.arange(0, 1100, 7), -100)
    for dtype, bound in {torch.bfloat16: 1e-2, torch.float16: 1e-2, torch.float32: 1e-5}.items():
        head, states = nn.Linear(16, 50, bias=False).to(dtype), torch.randn(1100, 16, dtype=dtype, requires_grad=True)
        for num_items, reduction in ((None, "mean"), (700, "sum")):
            loss = vocabulary_loss(states, head, labels, num_items)
            expected = F.cross_entropy(head(states).float(), labels, reduction=reduction) / (num_items or 1)
            assert loss.dtype == torch.float32
            assert abs(loss - expected) <= 1e-6 * expected, (dtype, num_items)
            gradient, its = (torch.autograd.grad(value, states)[0].float() for value in (loss, expected))
            assert (gradient - its).norm() <= bound * its.norm(), (dtype, num_items)


@pytest.mark.parametrize("tokens", [1, 7, 2 * CHUNK + 3])
def test_vocabulary_loss(tokens):
    states, labels = torch.randn(tokens, 16, requires_grad=True), torch.randint(0, 50, (tokens,))
    for bias, num_items in product((True, False), (None, 11, torch.tensor(11))):
        head = nn.Linear(16, 50, bias=bias)
        loss = vocabulary_loss(states, head, labels, num_items)
        wanted = F.cross_entropy(head(states), labels, reduction="sum") / (tokens if num_items is None else 11)
        results = [(each, torch.autograd.grad(each, [states, *head.parameters()])) for each in (loss, wanted)]
        assert_same(*results, f"bias={bias}, num_items={num_items!r}")


@pytest.mark.parametrize("trained", ["all", "adapter", "states", "nothing"])
def test_no_logits_are_computed_twice(trained):
    """Of a head that is not a linear layer, under a soft cap; gradients of what learns are exact, and kept once."""
    head = nn.Sequential(nn.Linear(16, 600), nn.Linear(600, 600, bias=False))
    head.out_features, calls = 600, []
    head.register_forward_hook(lambda module, args, logits: calls.append(len(logits)))
    states, labels = torch.randn(2 * CHUNK + 3, 16), torch.randint(0, 600, (2 * CHUNK + 3,))
    states.requires_grad_(trained in ("all", "states"))
    head.requires_grad_(trained == "all")
    head[1].requires_grad_(trained in ("all", "adapter"))
    learned = [tensor for tensor in (states, *head.parameters()) if tensor.requires_grad]
    wanted = logits_loss(soft_capped(head(states), 3.0), labels, 7)
    calls.clear()
    loss = vocabulary_loss(states, head, labels, 7, softcap=3.0)
    assert_same(loss, wanted)
    if learned:
        assert_same(*(torch.autograd.grad(each, learned, retain_graph=True) for each in (loss, wanted)))
        with pytest.raises(RuntimeError, match="twice"):
            torch.autograd.grad(loss, learned)
    assert calls == [CHUNK, CHUNK, 3]
    with torch.no_grad():
        assert_same(vocabulary_loss(states, head, labels, 7, softcap=3.0), wanted)


def test_a_second_derivative_is_that_of_all_logits_or_refused():
    """A loss in chunks has none."""
    head, states, labels = nn.Linear(16, 600), torch.randn(600, 16, requires_grad=True), torch.randint(0, 600, (600,))
    second = []
    for loss in (logits_loss(head(states), labels, None), F.cross_entropy(head(states), labels)):
        (gradient,) = torch.autograd.grad(loss, states, create_graph=True)
        second.append(torch.autograd.grad(gradient.square().sum(), states)[0])
    assert_same(*second)
    with pytest.raises(RuntimeError, match=r"cannot be differentiated twice: .*return_logits=True"):
        torch.autograd.grad(vocabulary_loss(states, head, labels), states, create_graph=True)
