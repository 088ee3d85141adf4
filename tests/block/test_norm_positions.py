"""Where the norms of a block stand, against the formulas that its docstring and the papers give."""

import pytest
import torch

from tfm_zoo import TfmBertConfig, TfmEncoderDecoderForConditionalGeneration, TfmGPTConfig, TfmGPTForCausalLM
from tfm_zoo.models.layers import TfmLayer

from ..precision import assert_same
from ..tiny import SIZES, ragged_batch, tiny_model

pytestmark = pytest.mark.usefixtures("double")


def block(**fields) -> tuple[TfmLayer, torch.Tensor]:
    torch.manual_seed(0)
    layer = TfmLayer(TfmBertConfig(**SIZES, **fields), 0).eval()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer, torch.randn(2, 5, SIZES["hidden_size"])


def attention(layer: TfmLayer, states: torch.Tensor) -> torch.Tensor:
    return layer.self_attn(states)[0]


def residual(layer: TfmLayer, position: str, x: torch.Tensor) -> torch.Tensor:
    """A block of two sub-layers by its formula, written out."""
    if position == "post":
        x = layer.self_attn_norm(x + attention(layer, x))
        return layer.mlp_norm(x + layer.mlp(x))
    if position == "pre":
        x = x + attention(layer, layer.self_attn_norm(x))
        return x + layer.mlp(layer.mlp_norm(x))
    if position == "output":
        x = x + layer.self_attn_output_norm(attention(layer, x))
        return x + layer.mlp_output_norm(layer.mlp(x))
    x = x + layer.self_attn_output_norm(attention(layer, layer.self_attn_norm(x)))
    return x + layer.mlp_output_norm(layer.mlp(layer.mlp_norm(x)))


@pytest.mark.parametrize("norm_type", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("position", ["post", "pre", "output", "both"])
def test_norms_of_a_block(position, norm_type):
    layer, x = block(norm_position=position, norm_type=norm_type)
    assert_same(layer(x), residual(layer, position, x))


@pytest.mark.parametrize("norms", [1, 2])
def test_attention_and_feed_forward_beside_each_other(norms):
    layer, x = block(norm_position="pre", use_parallel_residual=True, num_ln_in_parallel_attn=norms)
    normed = layer.self_attn_norm(x)
    other = normed if norms == 1 else layer.mlp_norm(x)
    assert_same(layer(x), x + attention(layer, normed) + layer.mlp(other))
    assert ("mlp_norm.weight" in layer.state_dict()) == (norms == 2)


@pytest.mark.parametrize("position", ["output", "both"])
@pytest.mark.parametrize("head", [TfmGPTForCausalLM, TfmEncoderDecoderForConditionalGeneration])
def test_they_decode_and_load_again(position, head, tmp_path):
    model = tiny_model(head, norm_position=position)
    model.save_pretrained(tmp_path)
    batch = ragged_batch(head)
    again = head.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        assert torch.equal(again(**batch).logits, model(**batch).logits)
    options = {"max_new_tokens": 5, "do_sample": False}
    ids = batch["input_ids"][:1, :4]
    assert torch.equal(model.generate(ids, **options), model.generate(ids, use_cache=False, **options))


def test_a_parallel_block_needs_a_norm_before_it():
    with pytest.raises(Exception, match=r"use_parallel_residual=True .* it goes with 'pre'"):
        TfmGPTConfig(norm_position="post", use_parallel_residual=True)
