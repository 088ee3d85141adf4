"""Gradient checkpointing gives the same gradients."""

import pytest
import torch
from transformers import DynamicCache, EncoderDecoderCache

from tfm_zoo import TfmBertModel, TfmEncoderDecoderForConditionalGeneration, TfmGPTForCausalLM, TfmGPTModel

from ..precision import assert_same
from ..tiny import NO_DROPOUT, ragged_batch, recompute_activations, tiny_model

pytestmark = pytest.mark.usefixtures("double")

BIASED = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 10}
CASES = [
    (TfmBertModel, BIASED | {"relative_attention_per_layer": True}),
    (TfmBertModel, BIASED | {"skip_padding": False}),
    (TfmGPTModel, {"use_cache": True}),
    (TfmGPTForCausalLM, {}),
    (TfmEncoderDecoderForConditionalGeneration, {"use_cache": True}),
    (TfmEncoderDecoderForConditionalGeneration, {"skip_padding": False}),
]


@pytest.mark.parametrize(("head", "fields"), CASES)
def test_gradient_checkpointing(head, fields):
    batch = ragged_batch(head, labels=True)

    def gradients(checkpoint: bool, reentrant: bool = False) -> dict:
        model = tiny_model(head, **fields).train()  # dropout must be the same in both passes
        if checkpoint:
            recompute_activations(model, reentrant)
            # Re-entrant checkpointing follows the inputs' gradients; this is what the Trainer calls for that.
            model.enable_input_require_grads()
        torch.manual_seed(1)
        outputs = model(**batch)
        (outputs.loss if "loss" in outputs else outputs[0].square().sum() + outputs[-1].sum()).backward()
        return {name: parameter.grad for name, parameter in model.named_parameters()}

    wanted = gradients(checkpoint=False)
    for reentrant in (True, False):
        assert_same(gradients(checkpoint=True, reentrant=reentrant), wanted, f"reentrant={reentrant}")


@pytest.mark.parametrize("head", [TfmGPTForCausalLM, TfmEncoderDecoderForConditionalGeneration])
def test_the_cache_of_a_caller(head):
    """A block that is run again would write to it again: an empty one is left alone, as officially."""
    model, batch = tiny_model(head, **NO_DROPOUT).train(), ragged_batch(head, labels=True)
    wanted = model(**batch).loss
    recompute_activations(model)
    is_decoder = head is TfmGPTForCausalLM
    cache = DynamicCache() if is_decoder else EncoderDecoderCache(DynamicCache(), DynamicCache())
    outputs = model(**batch, past_key_values=cache)
    outputs.loss.backward()
    assert_same(outputs.loss, wanted)
    assert outputs.past_key_values is None and cache.get_seq_length() == 0
    if is_decoder:
        model.eval()(batch["input_ids"], past_key_values=cache, use_cache=True)
        with pytest.raises(ValueError, match=r"holds 9 positions.*gradient_checkpointing_disable\(\)"):
            model.train()(batch["input_ids"], past_key_values=cache)
