"""What decoders alone do: caches, packed sequences, rotary scaling, and losses and logits of some positions."""

from itertools import pairwise

import pytest
import torch
from transformers import DynamicCache, StaticCache

from tests.equivalence.comparison import Pair, positions_of, ragged_batch
from tests.official_models import BY_NAME, FALCON_RW, OFFICIAL_CLASSES, ROPE, build_tiny
from tests.precision import assert_same
from tfm_zoo import TfmEncoderDecoderConfig, TfmEncoderDecoderForConditionalGeneration, TfmGPTForCausalLM, named_config
from tfm_zoo.converters import from_official

pytestmark = pytest.mark.usefixtures("double")

LANGUAGE_MODELS = [each for each in OFFICIAL_CLASSES if each.head.zoo is TfmGPTForCausalLM]
#: for what no architecture has of its own: those whose parts the others have
EARLIEST = pytest.mark.parametrize(
    "pair", [each for each in LANGUAGE_MODELS if not each.is_later], indirect=True, ids=str
)
#: longer than the windows of the tiny models
LENGTHS = [13, 6, 10]
#: what is read at once, as in a prompt, a continued one, and one token after the other
PIECES = [5, 3, 1, 1, 1, 1, 1]
#: official classes that do not know of several sequences in a row
UNPACKED = ("openai-gpt", "opt", "falcon", "bloom", "mpt", "biogpt", "xglm")
CACHES = {
    "dynamic, sliding where layers do": lambda config: DynamicCache(config=config),
    "dynamic": lambda config: DynamicCache(),
    "static": lambda config: StaticCache(config=config, max_cache_len=20),
    "made by the model": lambda config: None,
}


@pytest.fixture(scope="module", params=LANGUAGE_MODELS, ids=str)
def pair(request) -> Pair:
    official = build_tiny(request.param)
    return Pair(request.param, official, [from_official(official)])


@torch.no_grad()
def test_piece_by_piece(pair):
    """With a cache, padded at the left or not at all, the logits are those of one pass, and the official class's."""
    ways = [("dynamic, sliding where layers do", "sdpa", LENGTHS), ("static", "eager", [13] * 3)]
    if not pair.official_class.is_later:
        ways += [("dynamic", "eager", LENGTHS), ("static", "sdpa", LENGTHS), ("made by the model", "sdpa", LENGTHS)]
    for cache, attention, lengths in ways:
        pair.prepare(attention)
        check_piece_by_piece(pair, cache, lengths)


def check_piece_by_piece(pair: Pair, cache: str, lengths: list[int]) -> None:
    official_class, official, [zoo] = pair
    batch = ragged_batch(official_class, official, "left", lengths) | {"use_cache": True}
    batch["position_ids"] = positions_of(batch)
    mask = batch["attention_mask"].bool()
    expected = official(**batch).logits
    once = zoo(**batch | {"use_cache": False}).logits
    filled, logits, start = CACHES[cache](zoo.config), [], 0
    for length in PIECES:
        by_token = {"input_ids", "position_ids", "token_type_ids"} & batch.keys()
        piece = {name: batch[name][:, start : start + length] for name in by_token}
        seen = batch["attention_mask"][:, : start + length]
        outputs = zoo(**piece, attention_mask=seen, past_key_values=filled, use_cache=True)
        filled = outputs.past_key_values
        logits.append(outputs.logits)
        start += length
    logits = torch.cat(logits, dim=1)
    assert_same(logits[mask], once[mask], "with a cache and without")
    assert_same(logits[mask], expected[mask], "with a cache and official_class")


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
        starts = [*(sequence == 0).nonzero().flatten().tolist(), 13]
        for start, end in pairwise(starts):
            alone = official(row[None, start:end]).logits[0]
            assert_same(place[start:end], alone, f"packed, and alone, from {start} to {end}")


@pytest.mark.parametrize(
    ("name", "fields"), [("BloomForCausalLM", {}), ("FalconForCausalLM", FALCON_RW), ("MptForCausalLM", {})], ids=str
)
@torch.no_grad()
def test_holes_in_the_mask(name, fields):
    """Where a mask hides tokens between others, BLOOM and Falcon leave them out of the distances, and MPT does not."""
    official = build_tiny(BY_NAME[name], **fields)
    zoo = from_official(official)
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
    official = build_tiny(BY_NAME["LlamaForCausalLM"], head_dim=8, rope_parameters=ROPE[kind])
    zoo = from_official(official)
    plain = build_tiny(BY_NAME["LlamaForCausalLM"], head_dim=8)
    plain.load_state_dict(official.state_dict())
    ids = torch.randint(5, 99, (2, 60), generator=torch.Generator().manual_seed(0))
    for length in (9, 60, 30, 9):
        logits, expected, unscaled = (model(ids[:, :length]).logits for model in (zoo, official, plain))
        assert_same(logits, expected, f"{length} positions")
        if kind != "default" and length == 60:
            assert (expected - unscaled).abs().max() > 1e-3


@EARLIEST
@torch.no_grad()
def test_logits_of_some_positions(pair):
    pair.prepare()
    official_class, official, [zoo] = pair
    batch = ragged_batch(official_class, official, "right", [13, 13])
    for keep in (0, 1, 4, torch.tensor([0, 5, 12])):
        logits, expected = (model(**batch, logits_to_keep=keep).logits for model in (zoo, official))
        assert logits.shape == expected.shape
        assert_same(logits, expected, f"logits_to_keep={keep}")


@EARLIEST
def test_losses(pair):
    """Labels shifted by the caller, and a sum over the whole optimizer step's labels."""
    official_class, official, [zoo] = pair
    batch = ragged_batch(official_class, official, "right", LENGTHS)
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    shifted = torch.cat((labels[:, 1:], torch.full((3, 1), -100)), dim=1)
    shifted[0, -1] = 7  # as in a text that goes on in the next piece
    for training in (True, False):
        pair.prepare(training=training)
        for given in (
            {"labels": labels},
            {"labels": labels, "num_items_in_batch": 57},
            {"labels": labels, "num_items_in_batch": torch.tensor(57)},
            {"labels": labels, "shift_labels": shifted},
            {"labels": labels, "shift_labels": shifted, "num_items_in_batch": 57},
        ):
            loss, expected = (model(**batch, **given).loss for model in (zoo, official))
            assert_same(loss, expected)
        # The official class reads `shift_labels` only beside `labels`.
        expected = official(**batch, labels=labels, shift_labels=shifted).loss
        assert_same(zoo(**batch, shift_labels=shifted).loss, expected)


@torch.no_grad()
def test_embeddings_in_place_of_ids(pair):
    pair.prepare()
    _, official, [zoo] = pair
    embeddings = torch.randn(2, 9, official.config.hidden_size, generator=torch.Generator().manual_seed(0))
    assert_same(zoo(inputs_embeds=embeddings).logits, official(inputs_embeds=embeddings).logits, "logits")


def test_published_parameter_counts():
    counts = {
        **{"openai-gpt": 116_534_784, "gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-large": 774_030_080},
        **{"gpt2-xl": 1_557_611_200, "smollm-135m": 134_515_008, "transformer-base": 63_082_496},
        **{"transformer-big": 214_245_376, "opus-mt": 73_886_208, "bart-base": 139_420_416, "bart-large": 406_291_456},
    }
    for name, count in counts.items():
        config = named_config(name)
        with torch.device("meta"):
            model = (TfmEncoderDecoderForConditionalGeneration if config.is_encoder_decoder else TfmGPTForCausalLM)(
                config
            )
        model.tie_weights()
        assert model.num_parameters() == count, name
    assert TfmEncoderDecoderConfig().to_diff_dict() == named_config("transformer-base").to_diff_dict()
