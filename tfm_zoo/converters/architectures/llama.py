"""LLaMA (Touvron et al. 2023) and the decoders that took over its code: Mistral, Qwen2, Qwen3.

They have RMSNorm, rotary positions and a gated feed-forward.
"""

from collections.abc import Iterable
from typing import Any

from ..architecture import Architecture, Head
from ..config_rules import Computed, ConfigRule, Field, Fields, Requires, amended, constants, ignored, only, same
from ..tensor_rules import NotConverted, Rename, TensorRule
from .decoder_family import CONFIG, GENERIC, generic_heads
from .projections import ATTENTION, GATED

BODY = (  # all but the norms of the blocks
    Rename("embed_tokens", "embeddings.embed_tokens"),
    *(Rename(name, name) for name in (*ATTENTION, *GATED)),
    Rename("norm", "norm"),
    NotConverted("rotary_emb.inv_freq"),
    NotConverted("layers.{i}.self_attn.rotary_emb.inv_freq"),
)
TENSORS = (
    *BODY,
    Rename("layers.{i}.input_layernorm", "layers.{i}.self_attn_norm"),
    Rename("layers.{i}.post_attention_layernorm", "layers.{i}.mlp_norm"),
)
HEAD_NORMS = tuple(Rename(name, name) for name in ("layers.{i}.self_attn.q_norm", "layers.{i}.self_attn.k_norm"))


def head_dim(official: Fields) -> int:
    return official.get("head_dim") or official["hidden_size"] // official["num_attention_heads"]


def rotates_whole_heads(rope_parameters: dict[str, Any] | None) -> bool:
    """Whether positions rotate every channel. (The official classes do, whatever `partial_rotary_factor` says.)"""
    by_layer_type = [value for value in (rope_parameters or {}).values() if isinstance(value, dict)]
    if by_layer_type:
        return all(map(rotates_whole_heads, by_layer_type))
    share = (rope_parameters or {}).get("partial_rotary_factor")
    return share in (None, 1.0) or rope_parameters["rope_type"] == "proportional"


ROTATES_WHOLE_HEADS = Requires("rope_parameters", rotates_whole_heads, "no partial_rotary_factor, or 1.0")
FIELDS = (
    *CONFIG,
    *same("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *same("intermediate_size", "hidden_act", "max_position_embeddings", "rope_parameters", "use_cache"),
    Field("rms_norm_eps", "norm_eps"),
    Computed("head_dim", head_dim),
    Computed("attention_dropout", lambda official: official.get("attention_dropout") or 0.0),
    *constants(norm_type="rmsnorm", position_embedding_type="rotary", mlp_type="gated", hidden_dropout=0.0),
    *constants(scaled_residual_init=False, train_padding_embedding=False),
    *only(token_classification_bias=True),
)
LLAMA_CONFIG = (*FIELDS, ROTATES_WHOLE_HEADS)


def llama(
    model_type: str,
    title: str,
    name: str,
    *config: ConfigRule,
    base: tuple[ConfigRule, ...] = LLAMA_CONFIG,
    tensors: tuple[TensorRule, ...] = TENSORS,
    stored: tuple[TensorRule, ...] = (),
    heads: Iterable[str | Head] = GENERIC,
    tokenizer: str = "LlamaTokenizer",
    models: tuple[str, ...] = (),
) -> Architecture:
    """The table of LLaMA, for official classes whose names begin with `name` and that differ from it by `config`, whose
    rules take the place of those of `base` for the same zoo fields."""
    return Architecture(
        model_type=model_type,
        title=title,
        models=models,
        prefix="model",
        other_prefixes=("transformer",),  # of the classes for question answering
        config=amended(base, *config),
        tensors=tensors,
        stored=stored,
        heads=generic_heads(name, heads),
        tokenizer=tokenizer,
    )


def window(official: Fields) -> int | None:
    size = official.get("sliding_window")
    return size if official.get("use_sliding_window") else None


def layer_types(official: Fields) -> list[str] | None:
    """The type of each layer; `None` without a window, so that a window that the caller chooses is for all layers."""
    return None if window(official) is None else official.get("layer_types")


LLAMA = llama(
    *("llama", "LLaMA", "Llama"),
    *same("attention_bias", "mlp_bias"),
    # With a window, the official class's cache forgets positions that its mask does not hide.
    *only(sliding_window=None, layer_types=None),
    models=("SmolLM",),
)
#: Jiang et al. 2023: with a sliding window, and without biases
MISTRAL = llama(
    *("mistral", "Mistral", "Mistral"),
    *same("sliding_window"),
    *constants(attention_bias=False, mlp_bias=False),
    *only(layer_types=None),
)
WINDOW = Computed(
    "sliding_window", window, lambda size: {"sliding_window": size, "use_sliding_window": size is not None}
)
WINDOWS = (WINDOW, Computed("layer_types", layer_types), *ignored("max_window_layers"))
#: for classes that need a window to make masks, even if no layer slides
ALWAYS_A_WINDOW = (*same("sliding_window"), Requires("sliding_window", lambda size: size is not None, "a number"))
#: Yang et al. 2024: with biases of queries, keys and values, and a window in some layers
QWEN2 = llama(
    *("qwen2", "Qwen2", "Qwen2"),
    *constants(attention_bias=True, attention_output_bias=False, mlp_bias=False),
    *WINDOWS,
    tokenizer="Qwen2Tokenizer",
)
#: Yang et al. 2025: with a norm of each head of queries and keys
QWEN3 = llama(
    *("qwen3", "Qwen3", "Qwen3"),
    *same("attention_bias", "head_dim"),
    *constants(mlp_bias=False, qk_norm="head"),
    *WINDOWS,
    models=("Qwen3-Embedding", "Qwen3-Reranker", "jina-embeddings-v5-text-small"),
    tensors=(*TENSORS, *HEAD_NORMS),
    tokenizer="Qwen2Tokenizer",
)
