"""Granite (Granite team 2024): LLaMA with four multipliers."""

from ..config_rules import Computed, Field, Fields, same
from .llama import llama


def logit_scale(official: Fields) -> float:
    return 1 / official.get("logits_scaling", 1.0)


GRANITE = llama(
    *("granite", "Granite", "Granite"),
    *same("attention_bias", "mlp_bias", "embedding_multiplier", "residual_multiplier"),
    Field("attention_multiplier", "attention_scale"),
    Computed("logit_scale", logit_scale, lambda scale: {"logits_scaling": 1 / scale}),
    heads=("Model", "ForCausalLM"),
    tokenizer="PreTrainedTokenizerFast",
)
