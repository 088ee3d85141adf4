"""Attention rollout equals its definition, and starts from the state that each classifier reads."""

import numpy as np
import pytest
import torch

import tfm_zoo
from tfm_zoo.visualization import attention_maps, attention_rollout, decision_rollout
from tfm_zoo.visualization.rollout import decision_of

from ..tiny import tiny_model
from .conftest import ENDS, TEXT, model_of

TOKENS = ["[CLS]", *TEXT.split(), "[SEP]"]


def by_hand(weights: torch.Tensor) -> np.ndarray:
    """Abnar and Zuidema (2020): the mean over heads, with the residual stream, each row normalised."""
    rollout = np.eye(weights.shape[-1])
    for layer in weights.numpy():
        mixed = layer.mean(axis=0) + np.eye(len(rollout))
        rollout = mixed / mixed.sum(axis=-1, keepdims=True) @ rollout
    return rollout


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_definition(kind, tokenizer):
    weights = attention_maps(model_of(kind), tokenizer, TEXT)[kind].weights
    rollout = attention_rollout(weights)
    np.testing.assert_allclose(rollout, by_hand(weights), atol=1e-6)


READS = {
    "cls": "the state of '[CLS]'",
    "mean": "the mean of all states",
    "attention": "a mean of all states, weighted by a learned query",
}


@pytest.mark.parametrize("pooling", READS)
def test_of_an_encoder(pooling, tokenizer):
    model = tiny_model(tfm_zoo.TfmBertForSequenceClassification, classifier_pooling=pooling)
    rollout = decision_rollout(model, tokenizer, TEXT)
    expected = by_hand(attention_maps(model, tokenizer, TEXT)["encoder"].weights)
    if pooling == "attention":
        states = model.model(tokenizer(TEXT, return_tensors="pt")["input_ids"]).last_hidden_state[0]
        weights = model.model.pooler_query(states).softmax(dim=0).detach().numpy()
        expected = (weights * expected).sum(0, keepdims=True)
    np.testing.assert_allclose(rollout.shares, expected.mean(0) if pooling == "mean" else expected[0], atol=1e-6)
    assert rollout.decision == decision_of(model.config, model(**tokenizer(TEXT, return_tensors="pt")).logits[0])
    assert rollout.tokens == TOKENS
    assert rollout.reads == READS[pooling]
    assert rollout.aside == {0, len(TOKENS) - 1}
    words = [*zip(TOKENS, rollout.shares.tolist(), strict=True)][1:-1]
    assert rollout.strongest() == sorted(words, key=lambda word: -word[1])[:3]


def test_of_a_decoder(tokenizer):
    model = tiny_model(tfm_zoo.TfmGPTForSequenceClassification)
    rollout = decision_rollout(model, tokenizer, TEXT)
    assert rollout.aside == {0, len(TOKENS) - 1}
    expected = by_hand(attention_maps(model, tokenizer, TEXT)["decoder"].weights)
    np.testing.assert_allclose(rollout.shares, expected[-1], atol=1e-6)
    assert rollout.reads == "the state of '[SEP]'"
    # The model ignores padding in the text.
    assert decision_rollout(model, tokenizer, f"{TEXT} [PAD] [PAD]").reads == "the state of '[SEP]'"


def test_of_an_encoder_decoder(tokenizer):
    """Residual streams of both stacks, with the encoder's last states where the decoder reads them."""
    model = tiny_model(tfm_zoo.TfmEncoderDecoderForSequenceClassification, **ENDS)
    rollout = decision_rollout(model, tokenizer, TEXT)
    maps = attention_maps(model, tokenizer, TEXT)
    length, last = len(TOKENS), len(TOKENS) - 1
    assert rollout.aside == {0, 1, length}  # behind the decoder's start token
    # One graph: the source's tokens first, the decoder's behind them.
    whole = np.eye(2 * length)
    whole[:length, :length] = by_hand(maps["encoder"].weights)
    for own, cross in zip(maps["decoder"].weights, maps["cross"].weights, strict=True):
        for source, target in ((0 * cross, own), (cross, 0 * own)):
            step = np.eye(2 * length)
            step[length:] += np.concatenate((source.mean(0), target.mean(0)), axis=1)
            encoded = whole.copy()
            whole = step / step.sum(-1, keepdims=True) @ whole
            whole[:length] = encoded[:length]
    row = whole[length + last]
    # What the decoder begins with, what both read, and the source's end.
    shares = (row[length:][:1], row[: length - 1] + row[length + 1 :], row[length - 1 : length])
    np.testing.assert_allclose(rollout.shares, np.concatenate(shares), atol=1e-6)
    assert rollout.tokens == ["[CLS]", *TOKENS]


@pytest.mark.parametrize(
    ("fields", "logits", "decision"),
    [
        ({"num_labels": 1}, [0.25], "0.25"),
        ({"num_labels": 2}, [0.0, 0.0], "LABEL_0 (50%)"),
        ({"num_labels": 3, "problem_type": "multi_label_classification"}, [0.0, 2.0, 1.0], "LABEL_1 (88%)"),
    ],
)
def test_decisions(fields, logits, decision):
    assert decision_of(tfm_zoo.TfmBertConfig(**fields), torch.tensor(logits)) == decision


@pytest.mark.parametrize(
    ("head", "fields", "complaint"),
    [
        (
            tfm_zoo.TfmGPTForSequenceClassification,
            {"layer_types": ["full_attention", "linear_attention"]},
            r"TfmGPTForSequenceClassification has linear attention \(layers 1\)",
        ),
        (tfm_zoo.TfmBertForMaskedLM, {}, r"\(TfmBertForMaskedLM\) is no classifier of the zoo"),
    ],
)
def test_bad_input(head, fields, complaint, tokenizer):
    with pytest.raises(ValueError, match=complaint):
        decision_rollout(tiny_model(head, **fields), tokenizer, TEXT)
