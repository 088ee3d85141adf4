"""What a decoder reads of its source: by kernels that take lengths, with gradients, at positions that are given."""

from itertools import pairwise

import pytest
import torch
from torch.nn import functional as F
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import flash_attention_mask

from tfm_zoo import TfmEncoderDecoderForConditionalGeneration, TfmEncoderDecoderModel

from ..precision import assert_same
from ..tiny import ragged_batch, tiny_model

pytestmark = pytest.mark.usefixtures("double")

HEAD = TfmEncoderDecoderForConditionalGeneration


def lengths_attention(module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
    """As flash attention: sequences end to end by their lengths, or whole batches without a mask."""
    assert attention_mask is None
    if "cu_seq_lens_k" not in kwargs:
        causal = module.is_causal and query.shape[2] > 1
        output = F.scaled_dot_product_attention(query, key, value, is_causal=causal, scale=scaling)
        return output.transpose(1, 2), None
    queries, keys = (pairwise(kwargs[name].tolist()) for name in ("cu_seq_lens_q", "cu_seq_lens_k"))
    outputs = [
        F.scaled_dot_product_attention(query[:, :, a:b], key[:, :, c:d], value[:, :, c:d], scale=scaling)
        for (a, b), (c, d) in zip(queries, keys, strict=True)
    ]
    assert kwargs["max_length_q"] * len(outputs) >= query.shape[2]
    return torch.cat(outputs, dim=2).transpose(1, 2), None


AttentionInterface.register("flash_lengths_in_torch", lengths_attention)
AttentionMaskInterface.register("flash_lengths_in_torch", flash_attention_mask)


@torch.no_grad()
def test_lengths_of_the_source_reach_the_kernel():
    """transformers would take the last columns of the source's mask for the target's own."""
    for side in ("right", "left", "holes"):
        model, batch = tiny_model(HEAD), ragged_batch(HEAD, side=side)
        search = {name: batch[name] for name in ("input_ids", "attention_mask")} | {"num_beams": 3, "max_new_tokens": 6}
        expected, generated = model(**batch).logits, model.generate(**search)
        model.config._attn_implementation = "flash_lengths_in_torch"  # its setter would look for a kernel on the Hub
        for use_cache in (True, False):
            assert_same(model(**batch, use_cache=use_cache).logits, expected, f"{side}, use_cache={use_cache}")
        assert torch.equal(model.generate(**search), generated)


def test_rows_that_are_equal_have_gradients_of_their_own():
    model = tiny_model(TfmEncoderDecoderModel)
    for use_cache in (True, False):
        embeds = torch.randn(1, 5, 32).repeat(2, 1, 1).requires_grad_()
        outputs = model(inputs_embeds=embeds, decoder_input_ids=torch.randint(3, 61, (2, 4)), use_cache=use_cache)
        outputs.last_hidden_state[1].square().sum().backward()
        assert embeds.grad[0].abs().max() == 0 and embeds.grad[1].abs().max() > 0


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
    with pytest.raises(ValueError, match="decoder_position_ids of shape"):
        model(**batch, decoder_position_ids=torch.arange(3)[None])


@torch.no_grad()
def test_positions_after_a_target_that_is_padded_at_its_left():
    """Counted over real tokens, they go on from the real ones in the cache, whatever the type of the mask."""
    model = tiny_model(HEAD, position_ids_from_padding=True, pad_token_id=1, bos_token_id=0, decoder_start_token_id=2)
    source = torch.randint(3, 61, (2, 5))
    target = torch.tensor([[1, 1, 5, 6, 7], [3, 4, 5, 6, 7]])
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
        made, wanted = (
            model(ids, decoder_input_ids=ids, **given).logits for given in ({}, {"attention_mask": torch.tensor(mask)})
        )
        assert_same(made, wanted, str(fields))


def test_gradients_reach_the_weights_that_are_returned():
    model = tiny_model(TfmEncoderDecoderModel)
    model.set_attn_implementation("eager")
    outputs = model(**ragged_batch(TfmEncoderDecoderModel), output_attentions=True)
    outputs.cross_attentions[0].retain_grad()
    outputs.last_hidden_state.square().sum().backward()
    assert outputs.cross_attentions[0].grad.abs().max() > 0
