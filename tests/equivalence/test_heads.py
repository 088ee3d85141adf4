"""Every head of every official architecture: outputs, hidden states, losses and gradients of the native class."""

import pytest
import torch

from tests.equivalence.comparison import (
    assert_close,
    assert_same_gradients,
    assert_same_loss,
    assert_same_outputs,
    labels_for,
    loss_of,
    positions_of,
    ragged_batch,
    target_mask,
)
from tests.natives import BY_NAME, NATIVES, PUBLISHED, Native, build, build_tiny, keep_every_layer
from tfm_zoo.converters import from_official

LENGTHS = [13, 5, 9, 1]
SETTINGS = [("eager", "right"), ("sdpa", "right"), ("sdpa", "left")]
#: every head of BERT, and of the others those that are not built as BERT's; of the decoders a GPT-2 and a LLaMA; of the
#: encoder-decoders an OPUS-MT and BART-base
FULL_SIZE = [native for native in NATIVES if native.architecture.model_type == "bert"] + [
    *(
        BY_NAME[f"{name}For{head}"]
        for name in ("Roberta", "DistilBert")
        for head in ("MaskedLM", "SequenceClassification")
    ),
    BY_NAME["GPT2LMHeadModel"],
    BY_NAME["LlamaForCausalLM"],
    BY_NAME["MarianMTModel"],
    BY_NAME["BartForConditionalGeneration"],
]
EVERY_HEAD = pytest.mark.parametrize("native", NATIVES, ids=str)
BOTH_SIDES = pytest.mark.parametrize("side", ["right", "left"])
BOTH_ATTENTIONS = pytest.mark.parametrize("attention", ["eager", "sdpa"])


def variants(native: Native, attention: str) -> list[dict]:
    """What a conversion is to be tested with: an encoder with and without its padding."""
    chosen = {} if native.chooses_attention else {"attn_implementation": attention}
    return [chosen] if native.is_decoder else [chosen | {"skip_padding": skip} for skip in (True, False)]


@EVERY_HEAD
@BOTH_SIDES
@BOTH_ATTENTIONS
def test_outputs(native, side, attention):
    official = build_tiny(native, attn_implementation=attention)
    batch = ragged_batch(native, official, side, LENGTHS)
    masks = (batch["attention_mask"], target_mask(batch))
    encoder_states = "encoder_hidden_states" if native.is_encoder_decoder else "hidden_states"
    with torch.no_grad():
        expected = official(**batch, output_hidden_states=True)
        assert len(expected[encoder_states]) == 4
        for variant in variants(native, attention):
            zoo = from_official(official, **variant)
            assert zoo.config._attn_implementation == attention
            outputs = zoo(**batch, output_hidden_states=True)
            assert_same_outputs(outputs, expected, *masks)
            padded = batch["attention_mask"].flatten(0, -2) == 0
            if variant.get("skip_padding") and side == "right":
                assert not outputs[encoder_states][1][padded].any(), "padding has been computed"
        if native.is_decoder:
            batch["position_ids"] = positions_of(batch)
            expected, outputs = (model(**batch, output_hidden_states=True) for model in (official, zoo))
            assert_same_outputs(outputs, expected, *masks)


@EVERY_HEAD
@BOTH_SIDES
@BOTH_ATTENTIONS
def test_loss_and_gradients(native, side, attention):
    official = build_tiny(native, attn_implementation=attention).train()
    batch = ragged_batch(native, official, side, LENGTHS)
    # A position that sees padding alone sees what is to come, in OpenAI GPT and in FSMT.
    sees_ahead = not native.chooses_attention and side == "left"
    for everywhere in (False,) if sees_ahead else (True, False):
        labels = labels_for(native, official, batch, everywhere)
        official.zero_grad()
        expected = loss_of(official, native, batch, labels)
        expected.backward()
        for variant in variants(native, attention):
            zoo = from_official(official, **variant).train()
            loss = loss_of(zoo, native, batch, labels)
            loss.backward()
            assert_same_loss(loss, expected)
            assert_same_gradients(zoo, official, native)


@EVERY_HEAD
def test_dropout_stands_where_the_native_class_has_it(native):
    """With padding computed both draw the same random numbers in the same order, if every dropout is in its place."""
    official = build_tiny(native, dropout=True, attn_implementation="eager").train()
    zoo = from_official(official, **variants(native, "eager")[-1]).train()
    # FSMT has the batch after the positions: the order is the same for a batch of one alone.
    lengths = LENGTHS[:1] if native.architecture.model_type == "fsmt" else LENGTHS
    batch = ragged_batch(native, official, "right", lengths)
    outputs = []
    for model in (zoo, official):
        torch.manual_seed(0)
        with keep_every_layer():
            outputs.append(next(iter(model(**batch).values())))
    assert_close(*outputs, "output in training mode")


@pytest.mark.parametrize("native", FULL_SIZE, ids=str)
def test_published_size(native):
    """One pair of models under each setting: to build them takes longer than to run them."""
    # Over thirty layers of large matrices the sums grow so that single precision alone takes up the bound.
    large_matrices = native.architecture.model_type != "llama"
    official = build(native, large_matrices=large_matrices, **PUBLISHED[native.architecture.model_type])
    zoo = from_official(official)
    for attention, side in SETTINGS:
        batch = ragged_batch(native, official, side, [40, 23])
        for model in (official, zoo):
            model.set_attn_implementation(attention)
            model.zero_grad()
        with torch.no_grad():
            expected, outputs = (model(**batch, output_hidden_states=True) for model in (official, zoo))
        assert_same_outputs(outputs, expected, batch["attention_mask"], target_mask(batch))
        labels = labels_for(native, official, batch, everywhere=False)
        losses = [loss_of(model, native, batch, labels) for model in (zoo, official)]
        for loss in losses:
            loss.backward()
        assert_same_loss(*losses)
        assert_same_gradients(zoo, official, native, deep=True)
