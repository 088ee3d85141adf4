"""Gemma (Gemma team 2024), Gemma 2 (2024) and the text models of Gemma 3 (2025).

They are LLaMA with scaled embeddings and norms whose weights are differences from one. Gemma 2 and 3 have norms on both
sides of each sub-layer, and windows. Gemma 2 caps scores and logits; Gemma 3 norms queries and keys in place of that.
"""

from ..architecture import Head
from ..config_rules import Computed, Field, Fields, Requires, constants, only, same
from ..tensor_rules import Rename
from .decoder_family import LM_HEAD, ROTARY_BY_TYPE, SCORE, WITHOUT_ANSWERS
from .llama import ALWAYS_A_WINDOW, BODY, HEAD_NORMS, llama


def attention_scale(official: Fields) -> float:
    return official.get("query_pre_attn_scalar", 256) ** -0.5


GEMMA_CONFIG = (
    *same("attention_bias", "head_dim"),
    *constants(mlp_bias=False, norm_type="zero_centered_rmsnorm", scale_embedding=True, round_embedding_scale=True),
    Requires("use_bidirectional_attention", lambda value: not value, "None or False"),
)
BOTH_NORMS = (
    Rename("layers.{i}.input_layernorm", "layers.{i}.self_attn_norm"),
    Rename("layers.{i}.post_attention_layernorm", "layers.{i}.self_attn_output_norm"),
    Rename("layers.{i}.pre_feedforward_layernorm", "layers.{i}.mlp_norm"),
    Rename("layers.{i}.post_feedforward_layernorm", "layers.{i}.mlp_output_norm"),
)
LATER_CONFIG = (
    *GEMMA_CONFIG,
    *constants(norm_position="both"),
    *same("layer_types", "final_logit_softcapping"),
    *ALWAYS_A_WINDOW,
    Field("hidden_activation", "hidden_act"),
    Computed("attention_scale", attention_scale, lambda scale: {"query_pre_attn_scalar": max(1, round(scale**-2))}),
)

GEMMA = llama("gemma", "Gemma", "Gemma", *GEMMA_CONFIG, heads=WITHOUT_ANSWERS, tokenizer="GemmaTokenizer")
GEMMA2 = llama(
    *("gemma2", "Gemma 2", "Gemma2"),
    *LATER_CONFIG,
    *same("attn_logit_softcapping"),
    tensors=(*BODY, *BOTH_NORMS),
    heads=WITHOUT_ANSWERS,
    tokenizer="GemmaTokenizer",
)
GEMMA3 = llama(
    *("gemma3_text", "Gemma 3", "Gemma3"),
    *LATER_CONFIG,
    *constants(qk_norm="head"),
    ROTARY_BY_TYPE,
    *only(attn_logit_softcapping=None),
    tensors=(*BODY, *BOTH_NORMS, *HEAD_NORMS),
    heads=(
        Head("Gemma3TextModel", "TfmGPTModel"),
        Head("Gemma3ForCausalLM", "TfmGPTForCausalLM", (LM_HEAD,)),
        Head("Gemma3TextForSequenceClassification", "TfmGPTForSequenceClassification", (SCORE,)),
    ),
    tokenizer="GemmaTokenizer",
)
