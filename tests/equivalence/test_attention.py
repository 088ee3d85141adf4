"""The attention implementations agree with each other, and flex with the official class's flex."""

from itertools import product

import pytest
import torch

from tests.equivalence.comparison import Pair, assert_same_outputs, ragged_batch, real_outputs, target_mask
from tests.official_models import BY_NAME, build_tiny
from tests.precision import assert_same, in_single
from tests.tiny import tiny_model, without_kernels
from tfm_zoo import TfmBertModel, TfmEncoderDecoderModel, TfmGPTModel
from tfm_zoo.converters import from_official

pytestmark = pytest.mark.usefixtures("double")

LENGTHS = [13, 5, 5, 9]  # neighbours of one length are one call of a kernel


@pytest.mark.slow
@in_single()
@torch.no_grad()
def test_implementations_agree():
    """Flex needs heads of 16 channels; on a CPU its kernel has no backward pass, and no double precision."""
    official_class = BY_NAME["BertForMaskedLM"]
    official = build_tiny(official_class, hidden_size=64, attn_implementation="flex_attention")
    zoo_models = [from_official(official, skip_padding=skip) for skip in (True, False)]
    for side in ("right", "left"):
        batch = ragged_batch(official_class, official, side, LENGTHS)
        expected = official(**batch, output_hidden_states=True)
        for attention in ("eager", "sdpa", "flex_attention"):
            for zoo in zoo_models:
                zoo.set_attn_implementation(attention)
                outputs = zoo(**batch, output_hidden_states=True)
                made, wanted = (real_outputs(each, batch["attention_mask"]) for each in (outputs, expected))
                for name, tensor in wanted.items():
                    bound = max(1e-5, 1e-6 * tensor.abs().max().item())
                    torch.testing.assert_close(made[name], tensor, rtol=0, atol=bound, msg=name)


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
def test_implementations_agree_with_the_official_class(name, fields, official_attention):
    official = build_tiny(BY_NAME[name], attn_implementation=official_attention, **fields)
    zoo_models = [from_official(official, skip_padding=skip) for skip in (True, False)]
    for side in ("right", "left"):
        batch = ragged_batch(BY_NAME[name], official, side, LENGTHS)
        expected = official(**batch, output_hidden_states=True)
        for attention, zoo in product(("eager", "sdpa", "flex_attention"), zoo_models):
            zoo.set_attn_implementation(attention)
            outputs = zoo(**batch, output_hidden_states=True)
            assert_same_outputs(outputs, expected, batch["attention_mask"], target_mask(batch))


@pytest.mark.parametrize("head", [TfmBertModel, TfmGPTModel, TfmEncoderDecoderModel])
@torch.no_grad()
@without_kernels
def test_a_mask_of_pairs_that_holds_no_numbers(head):
    """True, or 1, where a query sees a key, as in sdpa; of an encoder-decoder, the source's and the target's."""
    model = tiny_model(head, hidden_size=64)  # flex attention needs heads of 16 channels
    pairs = {"attention_mask": torch.ones(2, 1, 6, 6).tril()}
    inputs = {"input_ids": torch.arange(2, 14).view(2, 6)}
    if head is TfmEncoderDecoderModel:
        inputs |= {"decoder_input_ids": inputs["input_ids"].flip(1)}
        pairs |= {"decoder_attention_mask": torch.ones(2, 1, 6, 6).tril().triu(-2)}
    added = {name: mask.log() for name, mask in pairs.items()}
    for attention, dtype in (("eager", torch.bool), ("sdpa", torch.long), ("flex_attention", torch.bool)):
        model.set_attn_implementation(attention)
        made = model(**inputs, **{name: mask.to(dtype) for name, mask in pairs.items()})[0]
        assert (made - model(**inputs)[0]).abs().max() > 0.01 or head is TfmGPTModel
        assert_same(made, model(**inputs, **added)[0], attention)


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
