"""Quantised models compute nearly what the whole ones do: int8 of the zoo, of torchao and of torch."""

import pytest
import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    TorchAoConfig,
)

import tfm_zoo
from tfm_zoo import (
    TfmBertForMaskedLM,
    TfmEncoderDecoderForConditionalGeneration,
    TfmGPTForCausalLM,
    quantize_int8,
)
from tfm_zoo.quantization import Int8Linear

from ..tiny import ragged_batch, tiny_decoder, tiny_model


def test_int8_projection_is_near_the_projection():
    torch.manual_seed(0)
    linear, inputs = nn.Linear(64, 33), torch.randn(3, 64)
    expected = linear(inputs)
    assert (Int8Linear(linear)(inputs) - expected).norm() < 0.02 * expected.norm()


def test_int8_model_speaks_but_is_not_saved(tmp_path):
    model = tiny_decoder()
    ids = torch.arange(12).view(2, 6)
    with torch.no_grad():
        expected = model(ids).logits
        quantized = quantize_int8(model)
        assert (quantized(ids).logits - expected).norm() < 0.1 * expected.norm()
    assert all(type(module) is not nn.Linear for module in quantized.modules())
    assert not any(parameter.requires_grad for parameter in quantized.parameters())
    assert quantized.generate(ids, max_new_tokens=5, pad_token_id=0).shape == (2, 11)
    with pytest.raises(ValueError, match="not saved"):
        quantized.save_pretrained(tmp_path / "int8")
    assert not (tmp_path / "int8").exists()


def test_int8_is_for_inference():
    model = tiny_decoder()
    with pytest.raises(ValueError, match="training mode"):
        quantize_int8(model.train())


def test_translation_in_eight_bits():
    """`quantize_int8`: every projection, the head with its untrained bias too."""
    head = TfmEncoderDecoderForConditionalGeneration
    model, batch = tiny_model(head, final_logits_bias=True, initializer_range=0.1), ragged_batch(head)
    model.lm_head.bias.normal_()
    wanted = model(**batch).logits
    quantised = tfm_zoo.quantize_int8(model)
    assert not [name for name, module in quantised.named_modules() if type(module) is nn.Linear]
    difference = (quantised(**batch).logits - wanted).norm() / wanted.norm()
    assert 0 < difference < 0.05
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    made = quantised.generate(**source, max_new_tokens=5, num_beams=3)
    assert len(made) == 4 and made.shape[1] <= 6 and made[:, 1:].unique().numel() > 1


def test_int8_weights(tmp_path):
    """torchao's weight-only quantisation on loading: eight-bit weights, and nearly the same scores."""
    torchao = pytest.importorskip("torchao.quantization")
    model, batch = tiny_model(TfmGPTForCausalLM), ragged_batch(TfmGPTForCausalLM, side="left")
    model.save_pretrained(tmp_path)
    config = TorchAoConfig(torchao.Int8WeightOnlyConfig())
    quantised = AutoModelForCausalLM.from_pretrained(tmp_path, trust_remote_code=True, quantization_config=config)
    projections = [module for module in quantised.model.layers.modules() if isinstance(module, nn.Linear)]
    assert len(projections) == 2 * 6
    assert not [projection for projection in projections if type(projection.weight) is nn.Parameter]
    wanted = model(**batch).logits
    difference = (quantised(**batch).logits - wanted).norm() / wanted.norm()
    assert 0 < difference < 0.05
    prompt = {"inputs": batch["input_ids"], "attention_mask": batch["attention_mask"], "max_new_tokens": 8}
    assert quantised.generate(**prompt, do_sample=False).shape == (4, 9 + 8)


def test_quantised():
    """Dynamic quantisation replaces every linear layer, and the model still computes nearly the same."""
    batch = ragged_batch()
    model = tiny_model(TfmBertForMaskedLM)
    wanted = model(**batch).logits
    quantised = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    assert not [name for name, module in quantised.named_modules() if type(module) is nn.Linear]
    difference = (quantised(**batch).logits - wanted).norm() / wanted.norm()
    assert 0 < difference < 0.2
    assert quantised(**batch, labels=batch["input_ids"]).loss.isfinite()
