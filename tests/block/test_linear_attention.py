"""Linear attention against its definition, written out, and decoding against one pass."""

import pytest
import torch
from torch.nn import functional as F
from transformers import DynamicCache

from tfm_zoo import TfmBertConfig, TfmEncoderDecoderForConditionalGeneration, TfmGPTConfig, TfmGPTForCausalLM
from tfm_zoo.models.batch import Layout
from tfm_zoo.models.layers import TfmAttention
from tfm_zoo.models.linear_attention import CHUNK, feature_map

from ..precision import assert_same, in_single
from ..tiny import SIZES, ragged_mask, tiny_config, tiny_model

pytestmark = pytest.mark.usefixtures("double")

LINEAR = {"attention_type": "linear"}
BOTH_WAYS = pytest.mark.parametrize("causal", [True, False], ids=["causal", "both_ways"])


def decoder(**fields) -> TfmGPTForCausalLM:
    return tiny_model(TfmGPTForCausalLM, **LINEAR | fields)


def random_ids(length: int = 6) -> torch.LongTensor:
    return torch.randint(5, 60, (2, length))


def make_attention(causal: bool) -> TfmAttention:
    config = (TfmGPTConfig if causal else TfmBertConfig)(**SIZES | LINEAR | {"num_key_value_heads": 2})
    return TfmAttention(config, 0, config.layer_type, causal, config)


def attention_by_definition(module: TfmAttention, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Equations 5 and 8 of Katharopoulos et al. 2020 in their quadratic form."""
    projected = (proj(hidden) for proj in (module.q_proj, module.k_proj, module.v_proj))
    query, key, value = (states.unflatten(-1, (-1, module.head_dim)).transpose(1, 2) for states in projected)
    key, value = (states.repeat_interleave(module.num_key_value_groups, dim=1) for states in (key, value))
    weights = (F.elu(query) + 1) @ (F.elu(key) + 1).mT * mask[:, None, None]
    weights = weights.tril() if module.is_causal else weights
    totals = weights.sum(-1, keepdim=True)
    return module.o_proj((weights / totals.masked_fill(totals == 0, 1.0) @ value).transpose(1, 2).flatten(2))


#: of padding; with lengths about those of chunks
MASKS = [ragged_mask(side=side) for side in ("right", "left", "holes")]
MASKS += [torch.ones(2, length).long() for length in (1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3)]


@BOTH_WAYS
def test_definition(causal):
    module = make_attention(causal)
    for mask in MASKS:
        hidden, results = torch.randn(*mask.shape, 32, requires_grad=True), []
        for output in (module(hidden, Layout(mask))[0], attention_by_definition(module, hidden, mask)):
            results.append((output, torch.autograd.grad(output.square().sum(), [hidden, *module.parameters()])))
        assert_same(*results, f"{tuple(mask.shape)}")


def test_a_gradient_reaches_back_through_steps():
    model, ids, found = decoder(), random_ids(), []
    for steps in ([6], [2, 3, 1]):
        cache = DynamicCache(config=model.config)
        logits = [model(part, past_key_values=cache, use_cache=True).logits for part in ids.split(steps, dim=1)]
        found.append(torch.autograd.grad(torch.cat(logits, 1).square().mean(), [*model.parameters()]))
    assert_same(*found)


@pytest.mark.parametrize("head", [TfmGPTForCausalLM, TfmEncoderDecoderForConditionalGeneration])
def test_generations_are_those_without_a_cache(head):
    model = tiny_model(head, **LINEAR)
    mask = ragged_mask((9, 4, 6), side="left" if head is TfmGPTForCausalLM else "right")
    batch = {"input_ids": torch.randint(5, 60, mask.shape).masked_fill(mask == 0, 0), "attention_mask": mask}
    sampled = {"do_sample": True, "num_return_sequences": 2}
    for how in ({}, {"num_beams": 3, "num_return_sequences": 2}, sampled, {"cache_implementation": "static"}):
        generated = []
        for options in (how, {"num_beams": 1} | how | {"use_cache": False, "cache_implementation": None}):
            torch.manual_seed(0)
            generated.append(model.generate(**batch, **{"use_cache": True, "max_new_tokens": 8} | options))
        assert torch.equal(*generated), how


@torch.no_grad()
def test_a_cache_is_continued_and_selected():
    model, ids = decoder(), random_ids(7)
    whole = model(ids).logits
    cache = DynamicCache()  # without a configuration: the model gives it its layers
    model(ids[:, :5], past_key_values=cache, use_cache=True)
    cache.batch_repeat_interleave(2)
    cache.reorder_cache(torch.tensor([2, 3, 0, 1]))
    cache.batch_select_indices(torch.tensor([1, 2]))
    assert_same(model(ids[[1, 0], 5:], past_key_values=cache, use_cache=True).logits, whole[[1, 0], 5:])
    cache.reset()
    assert cache.get_seq_length() == 0
    assert_same(model(ids, past_key_values=cache, use_cache=True).logits, whole)


@BOTH_WAYS
@torch.no_grad()
def test_nothing_of_the_square_of_the_length_is_made(causal):
    output, _ = make_attention(causal)(torch.randn(1, 30_000, 32))  # whose square is 7 GB, for each head
    assert output.isfinite().all()


@in_single()
def test_features_are_exact_where_they_are_small():
    values = torch.cat([torch.linspace(-30, 30, 601), torch.tensor([0.0])])
    exact = torch.where(values > 0, values.double() + 1, values.double().exp())
    torch.testing.assert_close(feature_map(values).double(), exact, rtol=1e-6, atol=0)


def test_a_state_is_not_written_over_where_that_is_forbidden():
    """By a gradient that needs it, or since it was made in inference mode."""
    model, ids = decoder(), random_ids()
    whole = model(ids).logits
    for mode in (torch.enable_grad, torch.inference_mode):
        cache = DynamicCache(config=model.config)
        with mode():
            begin = model(ids[:, :4], past_key_values=cache, use_cache=True).logits
        with torch.no_grad():
            assert_same(model(ids[:, 4:], past_key_values=cache, use_cache=True).logits, whole[:, 4:], mode.__name__)
        if begin.requires_grad:
            begin.sum().backward()


@in_single()
@torch.no_grad()
def test_half_precision_sums_in_float32():
    model, ids = decoder(), random_ids(20)
    exact = model(ids).logits
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = model(ids, use_cache=True)
    for outputs in (mixed, model.to(torch.bfloat16)(ids, use_cache=True)):
        assert outputs.past_key_values.layers[0].keys.dtype == torch.float32
        assert (outputs.logits.float() - exact).abs().max() <= 0.05 * exact.abs().max()


def test_inputs_that_linear_attention_cannot_take():
    model, ids, cache = decoder(), random_ids(), DynamicCache(config=tiny_config(TfmGPTConfig, **LINEAR))
    model(torch.cat([ids, ids[:1]]), past_key_values=cache, use_cache=True)  # of three sequences
    other, official_cache = decoder(num_key_value_heads=2), DynamicCache(config=tiny_config(TfmGPTConfig))
    lookup = {"use_cache": True, "prompt_lookup_num_tokens": 2}
    for call, message in (
        (lambda: model(ids, torch.zeros(2, 1, 6, 6)), r"compares no two positions: it should be of shape \(2, 6\)"),
        (lambda: model(ids, past_key_values=official_cache), "past_key_values has a DynamicLayer for layer 0"),
        (lambda: model(ids, past_key_values=cache), "past_key_values holds 3 sequences, and the inputs are 2"),
        (lambda: other(ids, past_key_values=cache), "past_key_values is the cache of another model"),
        (lambda: model.generate(ids[:1], **lookup), "assisted generation is not supported with stateful models"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
