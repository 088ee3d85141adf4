"""SmolLM3 (Bakouch et al. 2025): LLaMA in which some layers have no positions."""

from ..config_rules import ignored, same
from .llama import WINDOWS, llama

SMOLLM3 = llama(
    *("smollm3", "SmolLM3", "SmolLM3"),
    *same("attention_bias", "mlp_bias", "no_rope_layers"),
    *ignored("no_rope_layer_interval"),  # where there is no list of layers, it makes one
    *WINDOWS,
    tokenizer="PreTrainedTokenizerFast",
)
