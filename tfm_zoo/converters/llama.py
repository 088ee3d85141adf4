"""LLaMA (Touvron et al. 2023), and Mistral and Qwen2, which differ from it in their windows and biases."""

from functools import partial
from typing import Any

from ..models import modeling_tfm_gpt as zoo
from .architecture import Architecture, Head, Reading
from .gpt2 import CLASSIFIER_DROPOUT, FREE, LANGUAGE_MODEL, QUESTION_ANSWERING, READ_BY, SEQUENCE_CLASSIFIER
from .rules import Rename, same

FIELDS = {
    **same(
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "intermediate_size",
        "hidden_act",
        "max_position_embeddings",
        "rope_parameters",
        "initializer_range",
        "pad_token_id",
        "bos_token_id",
        "eos_token_id",
        "tie_word_embeddings",
        "use_cache",
    ),
    "rms_norm_eps": "norm_eps",
}
CONSTANTS = {
    "norm_type": "rmsnorm",
    "position_embedding_type": "rotary",
    "mlp_type": "gated",
    "hidden_dropout": 0.0,
    "attention_bias": False,
    "mlp_bias": False,
    "scaled_residual_init": False,
    "train_padding_embedding": False,
}
BODY = (
    Rename("embed_tokens", "embeddings.embed_tokens"),
    *(
        Rename(f"layers.{{i}}.self_attn.{part}_proj", f"layers.{{i}}.self_attn.{part}_proj")
        for part in ("q", "k", "v", "o")
    ),
    *(Rename(f"layers.{{i}}.mlp.{part}_proj", f"layers.{{i}}.mlp.{part}_proj") for part in ("gate", "up", "down")),
    Rename("layers.{i}.input_layernorm", "layers.{i}.self_attn_norm"),
    Rename("layers.{i}.post_attention_layernorm", "layers.{i}.mlp_norm"),
    Rename("norm", "norm"),
)
TOKEN_CLASSIFIER = (SEQUENCE_CLASSIFIER, Rename("score.bias", "score.bias"))


def turns_every_channel(rope_parameters: dict[str, Any] | None) -> bool:
    """Whether positions turn whole heads: the native classes turn no parts of them, whatever is said of a part."""
    share = (rope_parameters or {}).get("partial_rotary_factor")
    return share in (None, 1.0) or rope_parameters["rope_type"] == "proportional"


def head_dim(fields: dict[str, Any]) -> int:
    return fields.get("head_dim") or fields["hidden_size"] // fields["num_attention_heads"]


def window(fields: dict[str, Any]) -> int | None:
    return fields.get("sliding_window") if fields.get("use_sliding_window") else None


def layer_types(fields: dict[str, Any]) -> list[str] | None:
    """`None` without a window: should the zoo's model be given one, its layers follow."""
    return None if window(fields) is None else fields.get("layer_types")


def heads(name: str) -> tuple[Head, ...]:
    return (
        Head(f"{name}Model", zoo.TfmGPTModel),
        Head(f"{name}ForCausalLM", zoo.TfmGPTForCausalLM, (LANGUAGE_MODEL,)),
        Head(f"{name}ForSequenceClassification", zoo.TfmGPTForSequenceClassification, (SEQUENCE_CLASSIFIER,)),
        Head(f"{name}ForTokenClassification", zoo.TfmGPTForTokenClassification, TOKEN_CLASSIFIER),
        Head(f"{name}ForQuestionAnswering", zoo.TfmGPTForQuestionAnswering, (QUESTION_ANSWERING,)),
    )


READINGS = {
    "attention_dropout": Reading(
        lambda fields: fields.get("attention_dropout") or 0.0, lambda rate: {"attention_dropout": rate}
    ),
    "head_dim": Reading(head_dim, lambda width: {"head_dim": width}),
    "classifier_dropout": CLASSIFIER_DROPOUT,
}
REQUIRED = {"rope_parameters": turns_every_channel, "token_classification_bias": True}

like_llama = partial(
    Architecture,
    prefix="model",
    other_prefixes=("transformer",),  # for question answering
    body=BODY,
    ignored=("rotary_emb.inv_freq",),
    read_by=READ_BY,
    free=FREE,
)

LLAMA = like_llama(
    model_type="llama",
    title="LLaMA",
    fields=FIELDS | same("attention_bias", "mlp_bias"),
    readings=READINGS,
    constants=CONSTANTS,
    # With a window its cache forgets what its mask does not hide.
    required=REQUIRED | {"sliding_window": None, "layer_types": None},
    heads=heads("Llama"),
    tokenizer="LlamaTokenizer",
)
MISTRAL = like_llama(
    model_type="mistral",
    title="Mistral",
    fields=FIELDS | same("sliding_window"),
    readings=READINGS,
    constants=CONSTANTS,
    required=REQUIRED | {"layer_types": None},
    heads=heads("Mistral"),
    tokenizer="LlamaTokenizer",
)
QWEN2 = like_llama(
    model_type="qwen2",
    title="Qwen2",
    fields=FIELDS,
    readings={
        **READINGS,
        "sliding_window": Reading(
            window, lambda width: {"sliding_window": width, "use_sliding_window": width is not None}
        ),
        "layer_types": Reading(layer_types, lambda types: {"layer_types": types}),
    },
    constants=CONSTANTS | {"attention_bias": True, "attention_output_bias": False},
    required=REQUIRED,
    heads=heads("Qwen2"),
    tokenizer="Qwen2Tokenizer",
)
