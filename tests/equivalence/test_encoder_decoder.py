"""What encoder-decoders alone do: labels that become what is decoded, a source decoded as it stands, attention to the
encoder, vocabularies of their own."""

from importlib import import_module

import pytest
import torch
from torch import nn
from transformers import AutoModelForMaskedLM

from tests.equivalence.comparison import (
    FIRST,
    Pair,
    assert_same_gradients,
    assert_same_outputs,
    labels_for,
    ragged_batch,
    target_mask,
)
from tests.official_models import BY_NAME, OFFICIAL_CLASSES, build_tiny
from tests.precision import assert_same
from tfm_zoo import TfmEncoderDecoderForConditionalGeneration
from tfm_zoo.converters import from_official

pytestmark = pytest.mark.usefixtures("double")

#: those that are made of parts of the others are compared in `test_heads.py`
LIKE_OTHERS = ("plbart", "mvp", "pegasus", "blenderbot", "mt5", "umt5")
TRANSLATORS = [
    each
    for each in OFFICIAL_CLASSES
    if each.head.zoo is TfmEncoderDecoderForConditionalGeneration and each.architecture.model_type not in LIKE_OTHERS
]
EVERY_TRANSLATOR = pytest.mark.parametrize("official_class", TRANSLATORS, ids=str)
LENGTHS = [13, 5, 5, 9, 1]


def shifted_by(official, labels: torch.Tensor) -> torch.Tensor:
    """The labels as the official class shifts them; M2M100 and Blenderbot have no method for it."""
    if hasattr(official, "prepare_decoder_input_ids_from_labels"):
        return official.prepare_decoder_input_ids_from_labels(labels)
    shift, config = import_module(type(official).__module__).shift_tokens_right, official.config
    return shift(labels, config.pad_token_id, config.decoder_start_token_id)


@EVERY_TRANSLATOR
def test_labels_alone(official_class):
    """They are shifted to the right, and what has no label becomes padding."""
    official = build_tiny(official_class, attn_implementation="eager")
    zoo = from_official(official)
    batch = ragged_batch(official_class, official, "right", LENGTHS)
    real = target_mask(batch).bool()
    labels = batch["decoder_input_ids"].masked_fill(~real, -100)
    given = {"labels": labels} | {name: batch[name] for name in ("input_ids", "attention_mask")}
    # FSMT would shift the source, and write to the labels.
    shifted = shifted_by(official, labels.clone())
    assert torch.equal(zoo.prepare_decoder_input_ids_from_labels(labels), shifted)
    for training in (True, False):
        official.train(training)
        expected = official(**given, decoder_input_ids=shifted, use_cache=False)
        summed = nn.functional.cross_entropy(expected.logits.flatten(0, 1), labels.flatten(), reduction="sum")
        outputs = zoo.train(training)(**given, return_logits=True)
        assert_same(outputs.logits[real], expected.logits[real], "logits")
        assert_same((outputs.loss, zoo(**given).loss), (expected.loss, expected.loss), "loss")
        assert_same(zoo(**given, num_items_in_batch=57).loss, summed / 57)
    with torch.no_grad():
        evaluated = zoo(**given)
    assert_same(evaluated.loss, expected.loss)
    assert_same(evaluated.logits[real], expected.logits[real], "logits in evaluation")
    assert not evaluated.logits[~real].any()


@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize(
    "name", ["BartModel", "MBartForConditionalGeneration", "PLBartForSequenceClassification", "MvpForQuestionAnswering"]
)
@torch.no_grad()
def test_source_alone(name, is_tied):
    """It is decoded itself, shifted to the right: the denoising that BART was trained for. Embeddings that are not tied
    have one vocabulary all the same."""
    official = build_tiny(BY_NAME[name], tie_word_embeddings=is_tied)
    zoo = from_official(official)
    for side in ("right", "left"):
        batch = ragged_batch(BY_NAME[name], official, side, LENGTHS)
        source = {name: batch[name] for name in ("input_ids", "attention_mask")}
        expected, outputs = (model(**source, output_hidden_states=True) for model in (official, zoo))
        assert_same_outputs(outputs, expected, batch["attention_mask"])


@pytest.mark.parametrize("name", ["Bart", "MBart", "Mvp"])
@torch.no_grad()
def test_masked_tokens(name, tmp_path):
    """The Auto class for masked tokens loads a language model, as it does officially; a source alone is denoised."""
    official_class = BY_NAME[f"{name}ForConditionalGeneration"]
    original = build_tiny(official_class)
    original.save_pretrained(tmp_path / "official")
    from_official(original).save_pretrained(tmp_path / "zoo")
    zoo, official = (AutoModelForMaskedLM.from_pretrained(tmp_path / side) for side in ("zoo", "official"))
    assert type(zoo) is TfmEncoderDecoderForConditionalGeneration
    batch = ragged_batch(official_class, official, "right", LENGTHS)
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    assert_same_outputs(zoo(**source), official(**source), batch["attention_mask"])


@EVERY_TRANSLATOR
@torch.no_grad()
def test_attention_weights(official_class):
    """Of both stacks, and of the decoder to the encoder."""
    official = build_tiny(official_class, attn_implementation="eager")
    zoo = from_official(official, attn_implementation="eager")
    for side in ("right", "left"):
        batch = ragged_batch(official_class, official, side, LENGTHS)
        asked = {"output_attentions": True, "output_hidden_states": True}
        expected, outputs = (model(**batch, **asked) for model in (official, zoo))
        kinds = {"encoder_attentions": 3, "decoder_attentions": 2, "cross_attentions": 2}
        assert {kind: len(expected[kind]) for kind in kinds} == kinds
        assert_same_outputs(outputs, expected, batch["attention_mask"], target_mask(batch))


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("MarianMTModel", {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 71}),
        ("MarianMTModel", {"tie_word_embeddings": False}),
        ("BartForConditionalGeneration", {"tie_word_embeddings": False, "scale_embedding": True}),
        ("MBartForConditionalGeneration", {"scale_embedding": False, "decoder_layers": 4}),
        ("FSMTForConditionalGeneration", {"tgt_vocab_size": 99, "tie_word_embeddings": True}),
        ("M2M100ForConditionalGeneration", {"tie_word_embeddings": False}),
        ("PegasusForConditionalGeneration", {"tie_word_embeddings": False, "scale_embedding": False}),
    ],
    ids=str,
)
def test_embeddings_of_their_own_and_shared_ones(name, fields):
    official_class = BY_NAME[name]
    official = build_tiny(official_class, attn_implementation="eager", **fields)
    pair = Pair(official_class, official, [from_official(official)])
    if fields.get("tie_word_embeddings") is False:
        del official.model.shared  # which is then not read
    for side in ("right", "left"):
        pair.prepare("eager", training=True)
        batch = ragged_batch(official_class, official, side, LENGTHS)
        batch |= labels_for(official_class, official, batch, everywhere=False)
        losses = [model(**batch).loss for model in (*pair.zoo_models, official)]
        sum(losses).backward()
        assert_same(*losses)
        assert_same_gradients(*pair.zoo_models, official, official_class)


@EVERY_TRANSLATOR
@torch.no_grad()
def test_encoder_outputs_in_place_of_the_source(official_class):
    official = build_tiny(official_class, attn_implementation="eager")
    batch = ragged_batch(official_class, official, "right", LENGTHS)
    encoded = official.base_model.encoder(input_ids=batch.pop("input_ids"), attention_mask=batch["attention_mask"])
    # FSMT makes no causal mask but where there are ids of a source.
    ids = {"input_ids": torch.full((4, 13), FIRST)} if official_class.architecture.model_type == "fsmt" else {}
    expected = official(**batch, **ids, encoder_outputs=encoded).logits
    for given in (encoded, (encoded.last_hidden_state,)):
        logits = from_official(official)(**batch, encoder_outputs=given).logits
        real = target_mask(batch).bool()
        assert_same(logits[real], expected[real], "logits")


@pytest.mark.parametrize("name", ["BartForConditionalGeneration", "MBartForConditionalGeneration"])
@torch.no_grad()
def test_embeddings_in_place_of_ids(name):
    """Marian and FSMT scale those that they are given, of the decoder or of both; BART and the zoo take them as they
    are."""
    official = build_tiny(BY_NAME[name], scale_embedding=True)
    zoo = from_official(official)
    generator = torch.Generator().manual_seed(0)
    source, target = (torch.randn(2, length, 32, generator=generator) for length in (9, 6))
    ids = torch.randint(FIRST, 99, (2, 6), generator=generator)
    for given in ({"decoder_inputs_embeds": target}, {"decoder_input_ids": ids}):
        logits, expected = (model(inputs_embeds=source, **given).logits for model in (zoo, official))
        assert_same(logits, expected, "logits")
