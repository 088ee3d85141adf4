"""Gemma (Gemma team 2024), Gemma 2 (2024) and the text models of Gemma 3 (2025).

They are LLaMA with scaled embeddings and norms whose weights are differences from one. Gemma 2 and 3 have norms on both
sides of each sub-layer, and windows. Gemma 2 caps scores and logits; Gemma 3 norms queries and keys in place of that.
EmbeddingGemma (2025) is a Gemma 3 that reads in both directions. Its official configuration halves the window that
`config.json` names, and undoes it in `to_dict`, which is what the table reads.
"""

from ..architecture import Architecture, Head
from ..config_rules import Always, Computed, Field, Fields, Requires, amended, constants, ignored, only, same
from ..tensor_rules import Rename
from .decoder_family import LM_HEAD, ROTARY_BY_TYPE, SCORE, WITHOUT_ANSWERS
from .llama import ALWAYS_A_WINDOW, BODY, HEAD_NORMS, ROTATES_WHOLE_HEADS, TENSORS, llama


def attention_scale(official: Fields) -> float:
    return official.get("query_pre_attn_scalar", 256) ** -0.5


def reads_both_ways(official: Fields) -> bool:
    return bool(official.get("use_bidirectional_attention"))


def both_sides(window: int | None) -> dict[str, int]:
    return {} if window is None else {"sliding_window": 2 * window}


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
SCALE = Computed("attention_scale", attention_scale, lambda scale: {"query_pre_attn_scalar": max(1, round(scale**-2))})
LATER_CONFIG = (
    *GEMMA_CONFIG,
    *constants(norm_position="both"),
    *same("layer_types", "final_logit_softcapping"),
    *ALWAYS_A_WINDOW,
    Field("hidden_activation", "hidden_act"),
    SCALE,
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
#: Sinha et al. 2025: Gemma 2 with the first norm of each sub-layer alone
VAULT_GEMMA = llama(
    *("vaultgemma", "VaultGemma", "VaultGemma"),
    *amended(LATER_CONFIG, *constants(norm_position="pre")),
    *same("attn_logit_softcapping"),
    tensors=(Rename("layers.{i}.pre_feedforward_layernorm", "layers.{i}.mlp_norm"), *TENSORS),
    heads=("Model", "ForCausalLM"),
    tokenizer="GemmaTokenizer",
)
EMBEDDING_GEMMA = Architecture(
    model_type="embedding_gemma",
    variant_of="gemma3_text",
    is_variant=reads_both_ways,
    title="EmbeddingGemma",
    prefix="model",
    config=(
        *same("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
        *same("intermediate_size", "max_position_embeddings", "initializer_range", "head_dim", "layer_types"),
        *same("attention_bias", "attention_dropout", "tie_word_embeddings"),
        *same("pad_token_id", "bos_token_id", "eos_token_id"),
        Field("rms_norm_eps", "norm_eps"),
        Field("hidden_activation", "hidden_act"),
        Computed("sliding_window", lambda official: official.get("sliding_window", 4096) // 2, both_sides),
        SCALE,
        ROTARY_BY_TYPE,
        ROTATES_WHOLE_HEADS,
        Always("use_bidirectional_attention", True),
        *only(attn_logit_softcapping=None),
        *ignored("final_logit_softcapping"),  # it has no logits
        *constants(norm_position="both", norm_type="zero_centered_rmsnorm", qk_norm="head"),
        *constants(scale_embedding=True, round_embedding_scale=True, embedding_norm=False, type_vocab_size=0),
        *constants(train_padding_embedding=False, position_embedding_type="rotary", mlp_type="gated", mlp_bias=False),
        *constants(hidden_dropout=0.0, add_pooling_layer=False, lm_head_transform=False, lm_head_bias=False),
    ),
    tensors=GEMMA3.tensors,
    heads=(Head("Gemma3TextModel", "TfmBertModel"),),
    tokenizer="GemmaTokenizer",
)
