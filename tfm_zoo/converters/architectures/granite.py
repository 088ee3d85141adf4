"""Granite (Granite team 2024): LLaMA with four multipliers."""

from ..config_rules import Computed, Field, same
from .llama import llama

GRANITE = llama(
    *("granite", "Granite", "Granite"),
    *same("attention_bias", "mlp_bias", "embedding_multiplier", "residual_multiplier"),
    Field("attention_multiplier", "attention_scale"),
    Computed(
        "logit_scale", lambda official: 1 / official["logits_scaling"], lambda scale: {"logits_scaling": 1 / scale}
    ),
    heads=("Model", "ForCausalLM"),
    tokenizer="PreTrainedTokenizerFast",
)
