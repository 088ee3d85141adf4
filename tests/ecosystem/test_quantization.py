"""Quantised models compute nearly what the whole ones do: int8 of torchao and of torch."""

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, TorchAoConfig

from tfm_zoo import TfmBertForMaskedLM, TfmGPTForCausalLM

from ..tiny import ragged_batch, tiny_model


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


# (torch has said since 2.10 that torchao takes its place, and has it still.)
@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated:DeprecationWarning")
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
