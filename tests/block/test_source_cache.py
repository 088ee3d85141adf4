"""Keys and values of the source, once for the beams of a sentence; and beams that move."""

import pytest
import torch
from transformers import DynamicCache, EncoderDecoderCache, StaticCache

from tfm_zoo import TfmEncoderDecoderForConditionalGeneration
from tfm_zoo.models.batch import CACHE
from tfm_zoo.models.cache import TfmGrowingLayer
from tfm_zoo.models.source import TfmSourceCache, equal_rows

from ..precision import assert_same
from ..tiny import ragged_batch, tiny_model

pytestmark = pytest.mark.usefixtures("double")

HEAD = TfmEncoderDecoderForConditionalGeneration
BEAMS = 3


def test_rows_that_are_the_same():
    groups = {"aaabbbccc": 3, "aaaaaa": 6, "aabbb": 1, "abc": 1, "a": 1, "aabbaa": 2, "aaaabb": 2}
    for rows, number in groups.items():
        states = torch.tensor([ord(row) for row in rows]).float()[:, None, None].expand(-1, 2, 4)
        assert equal_rows(states, None) == number, rows
        other_mask = torch.ones(len(rows), 2).index_fill(0, torch.tensor([0]), 0)
        assert equal_rows(states, other_mask) == 1, rows


@pytest.mark.parametrize("across", [False, True], ids=["within sentences", "across sentences"])
@torch.no_grad()
def test_beams_are_as_rows_of_their_own(across):
    """Each row decodes what it would alone, after beams have changed places too."""
    model, batch = tiny_model(HEAD), ragged_batch(HEAD)
    encoded = model.get_encoder()(batch["input_ids"], batch["attention_mask"]).last_hidden_state
    first, second = (torch.randint(3, 61, (12, length)) for length in (2, 1))
    order = torch.arange(12).view(-1, BEAMS).flip(1).flatten()
    order = order.flip(0) if across else order
    for attention in ("eager", "sdpa"):
        model.set_attn_implementation(attention)
        cache = EncoderDecoderCache(DynamicCache(config=model.config), TfmSourceCache())
        ids, mask, states = (
            each.repeat_interleave(BEAMS, dim=0) for each in (batch["input_ids"], batch["attention_mask"], encoded)
        )
        model(encoder_outputs=(states,), attention_mask=mask, decoder_input_ids=first, past_key_values=cache)
        sources = cache.cross_attention_cache
        assert sources.layers[0].keys.shape[0] == len(batch["input_ids"])
        ids, mask, states = (each[order] if across else each for each in (ids, mask, states))
        cache.reorder_cache(order)
        assert sources.beams == (1 if across else BEAMS)
        target = {"attention_mask": mask, "decoder_input_ids": second, "past_key_values": cache}
        whole = model(ids, mask, torch.cat((first[order], second), dim=1)).logits
        assert_same(model(encoder_outputs=(states,), **target).logits, whole[:, -1:], attention)


@pytest.mark.parametrize("grad_mode", [torch.no_grad, torch.inference_mode])
def test_a_mask_that_is_changed_in_place(grad_mode):
    model, logits = tiny_model(HEAD), []
    given = {"encoder_outputs": (torch.randn(2, 6, 32),), "decoder_input_ids": torch.tensor([[5], [6]])}
    for is_in_place in (True, False):
        with grad_mode():
            mask, cache = torch.ones(2, 6, dtype=torch.long), None
            for _ in range(2):
                outputs = model(**given, attention_mask=mask, past_key_values=cache, use_cache=True)
                cache = outputs.past_key_values
                mask = mask if is_in_place else mask.clone()
                mask[:, 2:] = 0
        logits.append(outputs.logits)
    assert torch.equal(*logits)


def test_rows_that_are_chosen_or_repeated():
    states = torch.randn(2, 4, 5, 8)
    own = states.repeat_interleave(BEAMS, dim=0)
    for change, argument, expected in (
        ("batch_select_indices", torch.tensor([4, 0]), own[[4, 0]]),
        ("batch_repeat_interleave", 2, own.repeat_interleave(2, dim=0)),
    ):
        cache = TfmSourceCache()
        cache.update(states, -states, 0)
        cache.beams = BEAMS
        getattr(cache, change)(argument)
        assert_same((cache.layers[0].keys, cache.layers[0].values), (expected, -expected), change)


def test_reordered_beams_are_not_copied_again_and_older_ones_stay(monkeypatch):
    monkeypatch.setattr("tfm_zoo.models.cache.SMALL", 1)
    layer = TfmGrowingLayer()
    states = torch.randn(4, 2, 3, 8)
    layer.update(states[:, :, :2], -states[:, :, :2])
    layer.update(states[:, :, 2:], -states[:, :, 2:])
    before = layer.keys
    order = torch.tensor([1, 0, 3, 3])
    layer.reorder_cache(order)
    buffer = layer.buffers[0]
    keys, values = layer.update(states[:, :, :1], states[:, :, :1])
    assert layer.buffers[0] is buffer
    assert_same(keys, torch.cat((states[order], states[:, :, :1]), dim=2))
    assert_same(values, torch.cat((-states[order], states[:, :, :1]), dim=2))
    assert_same(before, states)


def test_a_cache_of_the_source_that_does_not_fit_is_not_used():
    """`generate` makes that of the source as if the decoder's window were its own; a larger one has empty positions."""
    model, ids = tiny_model(HEAD, sliding_window=3), torch.randint(3, 61, (2, 12))
    options = {"max_new_tokens": 8, "do_sample": False, "use_cache": True}
    whole = model.generate(ids, **options | {"use_cache": False})
    assert torch.equal(model.generate(ids, **options), whole)
    for sources in (DynamicCache(config=model.config), StaticCache(config=model.config, max_cache_len=20)):
        cache = EncoderDecoderCache(DynamicCache(config=model.config), sources)
        assert torch.equal(model.generate(ids, **{CACHE: cache}, **options), whole)


def test_the_mask_of_a_source_is_made_anew_for_another_attention():
    model = tiny_model(HEAD)
    ids, mask = torch.randint(3, 61, (2, 8)), torch.ones(2, 8, dtype=torch.long)
    mask[1, 5:] = 0
    tokens = torch.randint(3, 61, (2, 3))
    with torch.no_grad():
        first = model(ids, mask, tokens[:, :2], use_cache=True)
        model.set_attn_implementation("eager")
        step = model(
            attention_mask=mask,
            encoder_outputs=(first.encoder_last_hidden_state,),
            decoder_input_ids=tokens[:, 2:],
            past_key_values=first.past_key_values,
            output_attentions=True,
        )
    assert step.cross_attentions[0][1, :, :, 5:].eq(0).all()
