"""Tensor parallelism: two processes compute what one does, by plans that name existing modules."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tfm_zoo import (
    TfmBertForMaskedLM,
    TfmEncoderDecoderForConditionalGeneration,
    TfmEncoderDecoderModel,
    TfmGPTForCausalLM,
)

from ..tiny import NO_DROPOUT, ragged_batch, tiny_model


@pytest.mark.parametrize("head", [TfmEncoderDecoderForConditionalGeneration, TfmEncoderDecoderModel])
@pytest.mark.parametrize("has_bias", [False, True])
def test_plans_name_modules_that_are_there(head, has_bias):
    """A head with a bias of its own stays whole."""
    model = tiny_model(head, final_logits_bias=has_bias)
    names = {re.sub(r"\.\d+(?=\.|$)", ".*", name) for name, _ in model.named_modules()}
    assert model.tp_plan and set(model.tp_plan) <= names
    assert any(name.endswith(("lm_head", "embed_tokens")) for name in model.tp_plan) != has_bias


@pytest.mark.slow
def test_tensor_parallel(tmp_path):
    """Two processes hold half of every layer each, and have the outputs and gradients of the whole."""
    fields = {"vocab_size": 60, "mlp_type": "gated", "num_key_value_heads": 2} | NO_DROPOUT
    biased = {"relative_attention_num_buckets": 8}  # of all heads at once
    experts = {"mlp_bias": False, "num_local_experts": 3}
    for head, more in ((TfmBertForMaskedLM, biased), (TfmGPTForCausalLM, {}), (TfmGPTForCausalLM, experts)):
        folder = tmp_path / (head.__name__ + "-experts" * (more is experts))
        tiny_model(head, num_hidden_layers=1, **fields, **more).save_pretrained(folder)
        batch = {name: value.clamp(max=59) for name, value in ragged_batch(head, labels=True).items()}
        torch.save(batch, folder / "batch.pt")
    script = Path(__file__).with_name("tensor_parallel.py")
    subprocess.run([sys.executable, script, tmp_path], check=True, timeout=600)
