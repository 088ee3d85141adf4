"""What a decoder reads of its source: whose padding, at which positions, with which gradients; and keys and values of
it once for the beams of a sentence, wherever beams move."""

import pytest
import torch
from transformers import DynamicCache, EncoderDecoderCache, StaticCache

from tfm_zoo import TfmEncoderDecoderForConditionalGeneration, TfmEncoderDecoderModel
from tfm_zoo.models.batch import CACHE, Layout
from tfm_zoo.models.source import Source, TfmSourceCache, equal_rows

from ..precision import assert_same
from ..tiny import ragged_batch, tiny_model

pytestmark = pytest.mark.usefixtures("double")

HEAD = TfmEncoderDecoderForConditionalGeneration
BEAMS = 3


def test_rows_that_are_equal_have_gradients_of_their_own():
    model = tiny_model(TfmEncoderDecoderModel)
    for use_cache in (True, False):
        embeds = torch.randn(1, 5, 32).repeat(2, 1, 1).requires_grad_()
        outputs = model(inputs_embeds=embeds, decoder_input_ids=torch.randint(3, 61, (2, 4)), use_cache=use_cache)
        outputs.last_hidden_state[1].square().sum().backward()
        assert embeds.grad[0].abs().max() == 0 and embeds.grad[1].abs().max() > 0


@pytest.mark.parametrize("qk_norm", ["head", "whole"])
@torch.no_grad()
def test_attention_to_a_source_that_is_the_text_itself(qk_norm):
    """It is self-attention that sees all."""
    model = tiny_model(TfmEncoderDecoderModel, qk_norm=qk_norm, num_key_value_heads=2)
    own, other, states = model.encoder.layers[0].self_attn, model.decoder.layers[0].encoder_attn, torch.randn(2, 7, 32)
    other.load_state_dict(own.state_dict())
    assert_same(other(states, *Source(states, None, None, Layout(), None))[0], own(states)[0])


@torch.no_grad()
def test_positions_of_each_side():
    model = tiny_model(TfmEncoderDecoderModel, position_embedding_type="learned")
    batch = ragged_batch(TfmEncoderDecoderModel)
    plain = model(**batch)
    source = model(**batch, position_ids=torch.arange(9)[None] + 3)
    target = model(**batch, decoder_position_ids=torch.arange(7)[None] + 3)
    assert not torch.allclose(source.encoder_last_hidden_state, plain.encoder_last_hidden_state, atol=1e-3)
    assert torch.equal(target.encoder_last_hidden_state, plain.encoder_last_hidden_state)
    assert not torch.allclose(target.last_hidden_state, plain.last_hidden_state, atol=1e-3)


@torch.no_grad()
def test_positions_after_a_target_that_is_padded_at_its_left():
    """Counted over real tokens, they go on from the real ones in the cache, whatever the type of the mask."""
    model = tiny_model(HEAD, position_ids_from_padding=True, pad_token_id=1, bos_token_id=0, decoder_start_token_id=2)
    source, target = torch.randint(3, 61, (2, 5)), torch.tensor([[1, 1, 5, 6, 7], [3, 4, 5, 6, 7]])
    for dtype in (torch.long, torch.bool, torch.float):
        mask = (target != 1).to(dtype)
        whole = model(source, decoder_input_ids=target, decoder_attention_mask=mask).logits
        begun = {"decoder_input_ids": target[:, :4], "decoder_attention_mask": mask[:, :4]}
        past = model(source, **begun, use_cache=True).past_key_values
        rest = {"decoder_input_ids": target[:, 4:], "decoder_attention_mask": mask}
        assert_same(model(source, **rest, past_key_values=past).logits, whole[:, -1:], str(dtype))


@torch.no_grad()
def test_an_end_that_is_padding_too_says_nothing_of_padding():
    """Without a mask padding is known by its id, unless that is an end's."""
    ids = torch.tensor([[5, 6, 2]])
    for fields, mask in (
        ({"pad_token_id": 2}, [[1, 1, 1]]),
        ({"pad_token_id": 2, "eos_token_id": [3, 2]}, [[1, 1, 1]]),
        ({"pad_token_id": 6}, [[1, 0, 1]]),
    ):
        model = tiny_model(HEAD, **fields)
        masks = ({}, {"attention_mask": torch.tensor(mask)})
        made, wanted = (model(ids, decoder_input_ids=ids, **given).logits for given in masks)
        assert_same(made, wanted, str(fields))


def test_rows_that_are_the_same():
    for rows, number in {"aaabbbccc": 3, "aaaaaa": 6, "aabbbc": 1, "abc": 1, "a": 1, "aabbaa": 2, "aaaabb": 2}.items():
        states = torch.tensor([ord(row) for row in rows]).float()[:, None, None].expand(-1, 2, 4)
        assert equal_rows(states, None) == number, rows
        assert equal_rows(states, torch.ones(len(rows), 2).index_fill(0, torch.tensor([0]), 0)) == 1, rows


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
        given = batch["input_ids"], batch["attention_mask"], encoded
        ids, mask, states = (each.repeat_interleave(BEAMS, dim=0) for each in given)
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


def test_a_cache_of_the_source_that_does_not_fit_is_not_used():
    """`generate` makes that of the source as if the decoder's window were its own; a larger one has empty positions."""
    model, ids = tiny_model(HEAD, sliding_window=3), torch.randint(3, 61, (2, 12))
    options = {"max_new_tokens": 8, "do_sample": False, "use_cache": True}
    whole = model.generate(ids, **options | {"use_cache": False})
    assert torch.equal(model.generate(ids, **options), whole)
    for sources in (DynamicCache(config=model.config), StaticCache(config=model.config, max_cache_len=20)):
        cache = EncoderDecoderCache(DynamicCache(config=model.config), sources)
        assert torch.equal(model.generate(ids, **{CACHE: cache}, **options), whole)
