"""What an encoder and its decoder generate, by every way of asking for it."""

import pytest
import torch
from transformers import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from tfm_zoo import TfmEncoderDecoderForConditionalGeneration

from ..precision import assert_same
from ..tiny import ragged_batch, tiny_model
from .models import NEW_TOKENS, generate

pytestmark = pytest.mark.usefixtures("double")

#: each token once: what a small random model says is not one token over and over
VARIED = {"no_repeat_ngram_size": 1}
BEAMS = {"num_beams": 3, "num_return_sequences": 2, "length_penalty": 0.6}
T5_LIKE = {"position_embedding_type": "none", "relative_attention_num_buckets": 8, "norm_position": "pre"}


def make(seed: int = 0, **fields) -> TfmEncoderDecoderForConditionalGeneration:
    fields = {"use_cache": True, "eos_token_id": 2, "max_position_embeddings": 40} | fields
    return tiny_model(TfmEncoderDecoderForConditionalGeneration, seed, **fields)


def sources() -> dict[str, torch.LongTensor]:
    batch = ragged_batch(TfmEncoderDecoderForConditionalGeneration)
    return {name: batch[name] for name in ("input_ids", "attention_mask")}


def count_calls(module: torch.nn.Module) -> list:
    calls = []
    module.register_forward_hook(lambda module, inputs, output: calls.append(module))
    return calls


@pytest.mark.parametrize("options", [{}, BEAMS, {"cache_implementation": "static"}, {"use_cache": False}], ids=str)
def test_the_source_is_read_once(options):
    """By the encoder, and by the projections to the keys of each layer's cross-attention."""
    model = make()
    encoder, decoder = count_calls(model.get_encoder()), count_calls(model.get_decoder())
    projected = [count_calls(layer.encoder_attn.k_proj) for layer in model.model.decoder.layers]
    steps = len(generate(model, sources(), eos_token_id=None, **VARIED, **options).scores)
    assert len(encoder) == 1 and len(decoder) == steps == NEW_TOKENS
    assert {len(calls) for calls in projected} == {1 if options.get("use_cache", True) else steps}


@torch.no_grad()
def test_rows_of_one_source_may_differ_in_a_later_mask():
    """The cache shares their keys until then; transformers' own cache never does."""
    model, ids, logits = make(), sources()["input_ids"][:1].expand(2, -1), []
    given, mask = {"input_ids": ids, "decoder_input_ids": ids[:, :1]}, torch.ones_like(ids)
    for past in (None, EncoderDecoderCache(DynamicCache(), DynamicCache())):
        for later in (mask, torch.stack((mask[0], mask[1] * (torch.arange(mask.shape[1]) < 5)))):
            outputs = model(**given, attention_mask=later, past_key_values=past)
            past = outputs.past_key_values
        logits.append(outputs.logits)
    assert_same(*logits)
    assert not torch.equal(*logits[0])


def test_other_forms_of_the_source():
    model, batch = make(), sources()
    encoded, embedded = model.get_encoder()(**batch).last_hidden_state, model.get_input_embeddings()(batch["input_ids"])
    calls, mask = count_calls(model.get_encoder()), {"attention_mask": batch["attention_mask"]}
    for strategy in (VARIED, VARIED | BEAMS):
        wanted = generate(model, batch, **strategy)
        calls.clear()
        for inputs in (mask, batch):
            outputs = BaseModelOutput(last_hidden_state=encoded)  # `generate` writes to it
            made = generate(model, {"encoder_outputs": outputs} | inputs, **strategy)
            assert made.sequences.equal(wanted.sequences) and not calls
        # Where no mask is given, padding is known by its id.
        for inputs in ({"inputs_embeds": embedded} | mask, {"inputs": batch["input_ids"]}):
            made = generate(model, inputs, **strategy)
            assert made.sequences.equal(wanted.sequences)
            assert_same(made.scores, wanted.scores)
