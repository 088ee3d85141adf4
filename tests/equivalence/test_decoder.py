"""What decoders do, with a source or without one: caches, packed sequences, rotary scaling, losses and logits of some
positions, labels that become what is decoded; flex attention, masks of pairs and outputs of encoders."""

from itertools import pairwise, product

import pytest
import torch
from torch import nn
from transformers import DynamicCache, StaticCache

import tfm_zoo
from tests.equivalence.comparison import Pair, assert_same_outputs, positions_of, ragged_batch, target_mask
from tests.official_models import BY_NAME, FALCON_RW, OFFICIAL_CLASSES, ROPE, both, build_tiny
from tests.precision import assert_same
from tests.tiny import tiny_model, without_kernels
from tfm_zoo import TfmEncoderDecoderForConditionalGeneration, TfmEncoderDecoderModel, TfmGPTForCausalLM
from tfm_zoo.converters import from_official

pytestmark = pytest.mark.usefixtures("double")

LANGUAGE_MODELS = [each for each in OFFICIAL_CLASSES if each.head.zoo is TfmGPTForCausalLM]
#: longer than the windows of the tiny models
LENGTHS = [13, 6, 10]
#: what is read at once, as in a prompt, a continued one, and one token after the other
PIECES = [5, 3, 1, 1, 1, 1, 1]
#: official classes that do not know of several sequences in a row
UNPACKED = ("openai-gpt", "opt", "falcon", "bloom", "mpt", "biogpt", "xglm")


@pytest.fixture(scope="module", params=LANGUAGE_MODELS, ids=str)
def pair(request) -> Pair:
    official = build_tiny(request.param)
    return Pair(request.param, official, [from_official(official)])


@torch.no_grad()
def test_piece_by_piece(pair):
    """With a cache, padded at the left or not at all, the logits are those of one pass, and the official class's."""
    official_class, official, [zoo] = pair
    cases = [(DynamicCache(config=zoo.config), "sdpa", LENGTHS)]
    if not official_class.is_later:
        cases.append((StaticCache(config=zoo.config, max_cache_len=20), "eager", [13] * 3))
    for cache, attention, lengths in cases:
        pair.prepare(attention)
        batch = ragged_batch(official_class, official, "left", lengths) | {"use_cache": True}
        batch["position_ids"] = positions_of(batch)
        mask, logits, start = batch["attention_mask"].bool(), [], 0
        for length in PIECES:
            by_token = {"input_ids", "position_ids", "token_type_ids"} & batch.keys()
            piece = {name: batch[name][:, start : start + length] for name in by_token}
            seen = batch["attention_mask"][:, : start + length]
            logits.append(zoo(**piece, attention_mask=seen, past_key_values=cache, use_cache=True).logits)
            start += length
        logits = torch.cat(logits, dim=1)[mask]
        assert_same(logits, zoo(**batch | {"use_cache": False}).logits[mask], "with a cache and without")
        assert_same(logits, official(**batch).logits[mask], "with a cache and official_class")


@torch.no_grad()
def test_packed_sequences(pair):
    """Sequences in one row, told apart by positions that begin anew, do not see each other."""
    official_class, official, [zoo] = pair
    pair.prepare()
    ids = torch.randint(5, 99, (2, 13), generator=torch.Generator().manual_seed(0))
    positions = torch.tensor([[*range(7), *range(6)], [*range(2), *range(10), 0]])
    packed = {"input_ids": ids, "position_ids": positions, "use_cache": False}
    logits = zoo(**packed).logits
    if official_class.architecture.model_type not in UNPACKED:
        assert_same(logits, official(**packed).logits, "packed, and official_class")
    for row, sequence, place in zip(ids, positions, logits, strict=True):
        for start, end in pairwise([*(sequence == 0).nonzero().flatten().tolist(), 13]):
            alone = official(row[None, start:end]).logits[0]
            assert_same(place[start:end], alone, f"packed, and alone, from {start} to {end}")


@pytest.mark.parametrize("name", ["BloomForCausalLM", "FalconForCausalLM", "MptForCausalLM"])
@torch.no_grad()
def test_holes_in_the_mask(name):
    """Where a mask hides tokens between others, BLOOM and Falcon leave them out of the distances, and MPT does not."""
    official, zoo = both(name, **FALCON_RW if "Falcon" in name else {})
    batch = ragged_batch(BY_NAME[name], official, "left", [33, 20, 33])
    batch["attention_mask"][:, 15:18] = batch["attention_mask"][2, 9] = 0
    mask = batch["attention_mask"].bool()
    expected = official(**batch, use_cache=False).logits[mask]
    assert_same(zoo(**batch).logits[mask], expected, "at once")
    for cache in (DynamicCache(config=zoo.config), StaticCache(config=zoo.config, max_cache_len=40)):
        pieces, start = [], 0
        for end in (10, 16, 32, 33):
            seen = batch["attention_mask"][:, :end]
            pieces.append(zoo(batch["input_ids"][:, start:end], attention_mask=seen, past_key_values=cache).logits)
            start = end
        assert_same(torch.cat(pieces, dim=1)[mask], expected, f"with a {type(cache).__name__}")


@pytest.mark.parametrize("kind", ROPE)
@torch.no_grad()
def test_rotary_positions(kind):
    """Below and above the length that scaling starts from, in both orders."""
    official, zoo = both("LlamaForCausalLM", head_dim=8, rope_parameters=ROPE[kind])
    plain = build_tiny(BY_NAME["LlamaForCausalLM"], head_dim=8)
    plain.load_state_dict(official.state_dict())
    ids = torch.randint(5, 99, (2, 60), generator=torch.Generator().manual_seed(0))
    for length in (9, 60, 30, 9):
        logits, expected, unscaled = (model(ids[:, :length]).logits for model in (zoo, official, plain))
        assert_same(logits, expected, f"{length} positions")
        if kind != "default" and length == 60:
            assert (expected - unscaled).abs().max() > 1e-3


def test_logits_of_some_positions_and_losses():
    """Labels shifted by the caller, and a sum over the whole optimizer step's labels."""
    official, zoo = both("LlamaForCausalLM")
    batch = ragged_batch(BY_NAME["LlamaForCausalLM"], official, "right", LENGTHS)
    for keep in (0, 1, 4, torch.tensor([0, 5, 12])):
        logits, expected = (model(**batch, logits_to_keep=keep).logits for model in (zoo, official))
        assert_same(logits[0], expected[0], f"logits_to_keep={keep}")
    rows, real = torch.tensor([[0, 5], [2, 1], [12, 3]]), batch["attention_mask"].bool()
    whole = zoo(**batch).logits
    for keep, expected in ((rows, whole[torch.arange(3)[:, None], rows]), (real, whole[real])):
        assert_same(zoo(**batch, logits_to_keep=keep).logits, expected)
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    shifted = torch.cat((labels[:, 1:], torch.full((3, 1), -100)), dim=1)
    shifted[0, -1] = 7  # as in a text that goes on in the next piece
    for training, more in product((True, False), ({}, {"num_items_in_batch": 57}, {"shift_labels": shifted})):
        zoo.train(training)
        assert_same(*(model(**batch, labels=labels, **more).loss for model in (zoo, official)))
    # The official class reads `shift_labels` only beside `labels`.
    expected = official(**batch, labels=labels, shift_labels=shifted, num_items_in_batch=torch.tensor(57)).loss
    assert_same(zoo(**batch, shift_labels=shifted, num_items_in_batch=torch.tensor(57)).loss, expected)


def test_published_parameter_counts():
    """Of named models that tests/conversion does not count beside official ones."""
    counts = {
        **{"openai-gpt": 116_534_784, "gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-large": 774_030_080},
        **{"gpt2-xl": 1_557_611_200, "smollm-135m": 134_515_008, "transformer-base": 63_082_496},
        **{"transformer-big": 214_245_376, "opus-mt": 73_886_208, "bart-base": 139_420_416, "bart-large": 406_291_456},
    }
    for name, count in counts.items():
        config = tfm_zoo.named_config(name)
        head = TfmEncoderDecoderForConditionalGeneration if config.is_encoder_decoder else TfmGPTForCausalLM
        with torch.device("meta"):
            model = head(config)
        model.tie_weights()
        assert model.num_parameters() == count, name
    assert tfm_zoo.TfmEncoderDecoderConfig().to_diff_dict() == tfm_zoo.named_config("transformer-base").to_diff_dict()


#: those that are made of parts of the others are compared in `test_heads.py`
TRANSLATORS = ("MarianMTModel", "BartForConditionalGeneration", "MBartForConditionalGeneration")
TRANSLATORS += ("FSMTForConditionalGeneration", "M2M100ForConditionalGeneration", "T5ForConditionalGeneration")


@pytest.mark.parametrize("name", TRANSLATORS)
def test_labels_alone(name):
    """They are shifted to the right, and what has no label becomes padding."""
    official, zoo = both(name, attn_implementation="eager")
    batch = ragged_batch(BY_NAME[name], official, "right", LENGTHS)
    real = target_mask(batch).bool()
    labels = batch["decoder_input_ids"].masked_fill(~real, -100)
    given = {"labels": labels} | {name: batch[name] for name in ("input_ids", "attention_mask")}
    shifted = zoo.prepare_decoder_input_ids_from_labels(labels)
    if not name.startswith("M2M100"):  # whose class has no such method; FSMT's writes to the labels
        assert torch.equal(official.prepare_decoder_input_ids_from_labels(labels.clone()), shifted)
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


@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize(
    "name", ["BartModel", "MBartForConditionalGeneration", "PLBartForSequenceClassification", "MvpForQuestionAnswering"]
)
@torch.no_grad()
def test_source_alone(name, is_tied):
    """It is decoded itself, shifted to the right: the denoising that BART was trained for. Embeddings that are not tied
    have one vocabulary all the same."""
    official, zoo = both(name, tie_word_embeddings=is_tied)
    for side in ("right", "left"):
        batch = ragged_batch(BY_NAME[name], official, side, LENGTHS)
        source = {name: batch[name] for name in ("input_ids", "attention_mask")}
        expected, outputs = (model(**source, output_hidden_states=True) for model in (official, zoo))
        assert_same_outputs(outputs, expected, batch["attention_mask"])


@torch.no_grad()
def test_encoder_outputs_in_place_of_the_source():
    """As an object, a tuple or a mapping."""
    name = "BartForConditionalGeneration"
    (official, zoo), batch = both(name), ragged_batch(BY_NAME[name], build_tiny(BY_NAME[name]), "right", LENGTHS)
    encoded, real = official.get_encoder()(batch.pop("input_ids"), batch["attention_mask"]), target_mask(batch).bool()
    expected = official(**batch, encoder_outputs=encoded).logits[real]
    for given in (encoded, encoded.to_tuple(), {**encoded}):
        assert_same(zoo(**batch, encoder_outputs=given).logits[real], expected, type(given).__name__)


@pytest.mark.parametrize("attention", ["eager", "sdpa", "flex_attention"])
@torch.no_grad()
@without_kernels
def test_a_mask_of_pairs_that_holds_no_numbers(attention):
    """True, or 1, where a query sees a key; of the source and of the target."""
    model, ids = tiny_model(TfmEncoderDecoderModel, hidden_size=64), torch.arange(2, 14).view(2, 6)
    model.set_attn_implementation(attention)
    sees, given = torch.ones(2, 1, 6, 6).tril(), {"input_ids": ids, "decoder_input_ids": ids.flip(1)}
    masks = (sees.log(), sees.bool(), sees.long())
    wanted, *made = (model(**given, attention_mask=each, decoder_attention_mask=each)[0] for each in masks)
    assert_same(made, [wanted] * 2)


@pytest.mark.parametrize(
    ("name", "fields", "official_attention"),
    [
        # in layers that slide and one that does not
        ("Qwen2ForCausalLM", {"hidden_size": 64, "head_dim": 16}, "flex_attention"),
        # in both stacks, and between them
        ("MBartForConditionalGeneration", {"d_model": 64}, "flex_attention"),
        # whose own flex looks for a bias of each sequence, and has one for all
        ("T5ForConditionalGeneration", {"d_model": 64, "d_kv": 16}, "eager"),
    ],
)
@torch.no_grad()
@without_kernels
def test_flex_attention_is_that_of_the_official_class(name, fields, official_attention):
    official = build_tiny(BY_NAME[name], attn_implementation=official_attention, **fields)
    zoo_models = [from_official(official, skip_padding=skip) for skip in (True, False)]
    for side in ("right", "left"):
        batch = ragged_batch(BY_NAME[name], official, side, LENGTHS)
        expected = official(**batch, output_hidden_states=True)
        for zoo in zoo_models:
            zoo.set_attn_implementation("flex_attention")
            outputs = zoo(**batch, output_hidden_states=True)
            assert_same_outputs(outputs, expected, batch["attention_mask"], target_mask(batch))


@pytest.mark.parametrize("name", ["T5ForConditionalGeneration", "UMT5ForConditionalGeneration", "MarianMTModel"])
@torch.no_grad()
def test_a_source_without_tokens(name):
    official, ids = build_tiny(BY_NAME[name]), torch.arange(5, 20).view(3, 5)
    pair = Pair(BY_NAME[name], official, [from_official(official)])
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [1, 1, 1, 0, 0]])
    batch = {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": ids.flip(1)}
    for attention, use_cache in product(("eager", "sdpa"), (True, False)):
        pair.prepare(attention)
        wanted, made = (model(**batch, use_cache=use_cache).logits for model in (official, *pair.zoo_models))
        assert_same(made, wanted, f"{attention}, use_cache={use_cache}")
