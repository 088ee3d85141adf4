"""Blocks that are compiled one by one: padding is dropped before them, and other lengths compile nothing new."""

import pytest
import torch

from benchmarks.gpu import ragged_batches
from tfm_zoo import TfmBertForSequenceClassification, TfmEncoderDecoderForConditionalGeneration, TfmGPTForCausalLM

from ..tiny import NO_DROPOUT, tiny_model


def results(model, batches: list[dict], training: bool) -> tuple[list, list]:
    """The losses, with the norms of all gradients in training, of each batch."""
    losses, norms = [], []
    for batch in batches:
        if not isinstance(model, TfmBertForSequenceClassification):
            batch = batch | {"labels": batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)}
        model.zero_grad()
        with torch.set_grad_enabled(training):
            loss = model.train(training)(**batch).loss
        losses.append(loss.detach())
        if training:
            loss.backward()
            norms.append(torch.stack([each.grad.norm() for each in model.parameters() if each.grad is not None]).norm())
    return losses, norms


@pytest.mark.slow  # it compiles
@pytest.mark.parametrize(
    ("head", "training"),
    [
        (TfmBertForSequenceClassification, False),
        (TfmBertForSequenceClassification, True),
        (TfmGPTForCausalLM, True),
        (TfmEncoderDecoderForConditionalGeneration, True),
    ],
)
def test_ragged_batches_compile_nothing_new(head, training):
    torch._dynamo.reset()
    plain, model = (tiny_model(head, max_position_embeddings=64, **NO_DROPOUT) for _ in range(2))
    graphs = []

    def counting(graph, inputs):
        graphs.append(graph)
        return graph.forward

    stacks = [getattr(model.base_model, part, None) for part in ("encoder", "decoder")]
    for stack in [stack for stack in stacks if stack is not None] or [model.base_model]:
        for layer in stack.layers:
            layer.compile(backend=counting, dynamic=True)
    batches = ragged_batches("cpu", 10)
    first = results(model, batches[:3], training)
    made = len(graphs)
    rest = results(model, batches[3:], training)
    assert made > 0 and len(graphs) == made
    expected = results(plain, batches, training)
    torch.testing.assert_close(tuple(a + b for a, b in zip(first, rest, strict=True)), expected, rtol=1e-5, atol=1e-6)


@torch.no_grad()
@pytest.mark.slow  # it compiles
def test_padding_is_not_computed_in_them():
    """What was dropped is restored as zeros."""
    model, [batch] = tiny_model(TfmBertForSequenceClassification, max_position_embeddings=64), ragged_batches("cpu", 1)
    for layer in model.base_model.layers:
        layer.compile(backend="eager", dynamic=True)
    states = model.base_model(batch["input_ids"], batch["attention_mask"]).last_hidden_state
    assert not states[batch["attention_mask"] == 0].any() and states[batch["attention_mask"] == 1].abs().min() > 0
