"""Losses: which one a head computes, and when it makes logits."""

import pytest
import torch
from torch.nn import functional as F

from tfm_zoo import TfmBertForMaskedLM, TfmBertForSequenceClassification, TfmEncoderDecoderForConditionalGeneration

from ..precision import assert_same
from ..tiny import SIZES, ragged_batch, tiny_decoder, tiny_model

pytestmark = pytest.mark.usefixtures("double")


def test_the_loss_is_the_same_with_logits_and_without():
    model = tiny_decoder()
    ids = torch.arange(12).view(2, 6)
    losses = [
        model(ids, labels=ids, **options).loss for options in ({}, {"return_logits": False}, {"logits_to_keep": 1})
    ]
    assert_same(losses, losses[:1] * 3)


@pytest.mark.parametrize(
    ("problem", "labels", "classes", "loss"),
    [
        ("regression", torch.tensor([0.5, -1.0, 2.0, 0.0]), 1, lambda x, y: F.mse_loss(x.squeeze(), y)),
        ("regression", torch.randn(4, 3), 3, F.mse_loss),
        ("single_label_classification", torch.tensor([2, 0, 1, 1]), 3, F.cross_entropy),
        ("multi_label_classification", torch.eye(4)[:, :3], 3, F.binary_cross_entropy_with_logits),
    ],
)
def test_problem_types(problem, labels, classes, loss):
    """By name, and found from the labels, where values for several labels are not taken for several classes."""
    for given in (problem, None) if (problem, classes) != ("regression", 3) else (problem,):
        model = tiny_model(TfmBertForSequenceClassification, num_labels=classes, problem_type=given)
        labels = labels.double() if labels.is_floating_point() else labels
        outputs = model(**ragged_batch(), labels=labels)
        assert_same(outputs.loss, loss(outputs.logits, labels))
        assert model.config.problem_type == problem
    if problem != "single_label_classification":  # whole numbers count as numbers
        whole = labels.round()
        assert model(**ragged_batch(), labels=whole.long()).loss.equal(model(**ragged_batch(), labels=whole).loss)


def test_logits_are_made_where_somebody_reads_them():
    model, batch = tiny_model(TfmBertForMaskedLM), ragged_batch(TfmBertForMaskedLM, labels=True)
    training = model.train()
    assert training(**batch).logits is None
    assert training(**batch, return_logits=True).logits.shape == (4, 9, SIZES["vocab_size"])
    evaluating = model.eval()
    assert evaluating(**batch, return_logits=False).logits is None
    assert evaluating(batch["input_ids"], return_logits=False).logits is None
    with_logits = evaluating(**batch)
    assert_same(with_logits.loss, F.cross_entropy(with_logits.logits.flatten(0, 1), batch["labels"].flatten()))


def test_a_label_at_padding_counts_and_has_logits():
    model, batch = tiny_model(TfmBertForMaskedLM), ragged_batch()
    labels = batch["input_ids"]
    made, whole = model(**batch, labels=labels), model(**batch, labels=labels, output_hidden_states=True)
    assert (labels == 0).any()  # that of padding
    assert_same(made.loss, F.cross_entropy(made.logits.flatten(0, 1), labels.flatten()))
    assert_same(made.logits, whole.logits)


def test_nothing_to_predict():
    """As torch has it: nan for a mean over no token, zero where the step's number of tokens is given; no error."""
    model, batch = tiny_model(TfmBertForMaskedLM).train(), ragged_batch()
    labels = torch.full_like(batch["input_ids"], -100)
    assert model(**batch, labels=labels).loss.isnan()
    loss = model(**batch, labels=labels, num_items_in_batch=5).loss
    loss.backward()
    assert loss == 0


@pytest.mark.parametrize("head", [TfmBertForMaskedLM, TfmEncoderDecoderForConditionalGeneration])
def test_a_projection_of_ones_own_need_not_say_its_size(head):
    model, batch = tiny_model(head), ragged_batch(head, labels=True)
    expected = model(**batch)
    model.lm_head = torch.nn.Sequential(model.lm_head)
    made = model(**batch)
    assert torch.equal(made.loss, expected.loss) and torch.equal(made.logits, expected.logits)
