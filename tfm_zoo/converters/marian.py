"""Marian (Junczys-Dowmunt et al. 2018; the OPUS-MT translation models), and what BART and FSMT share with it."""

from typing import Any

from ..models import modeling_tfm_encoder_decoder as zoo
from .architecture import Architecture, Head, Reading
from .rules import Rename, Row, same

#: configuration fields that are the same for all encoder-decoders that grew out of BART's code
FIELDS = {
    **same(
        "decoder_layers",
        "max_position_embeddings",
        "attention_dropout",
        "activation_dropout",
        "scale_embedding",
        "use_cache",
        "pad_token_id",
        "bos_token_id",
        "eos_token_id",
        "decoder_start_token_id",
        "tie_word_embeddings",
    ),
    "d_model": "hidden_size",
    "encoder_layers": "num_hidden_layers",
    "encoder_attention_heads": "num_attention_heads",
    "encoder_ffn_dim": "intermediate_size",
    "activation_function": "hidden_act",
    "dropout": "hidden_dropout",
    "init_std": "initializer_range",
}
EQUAL = {"decoder_attention_heads": "encoder_attention_heads", "decoder_ffn_dim": "encoder_ffn_dim"}
REQUIRED = {"encoder_layerdrop": 0, "decoder_layerdrop": 0, "is_decoder": False, "is_encoder_decoder": True}
CONSTANTS = {"norm_eps": 1e-5, "weight_init": "normal"}
BLOCKS = tuple(
    Rename(f"{side}.layers.{{i}}.{official}", f"{side}.layers.{{i}}.{name}")
    for side, attentions in {"encoder": ("self_attn",), "decoder": ("self_attn", "encoder_attn")}.items()
    for official, name in {
        **same(*(f"{attention}.{part}_proj" for attention in attentions for part in "qkv")),
        **{f"{attention}.out_proj": f"{attention}.o_proj" for attention in attentions},
        **{f"{attention}_layer_norm": f"{attention}_norm" for attention in attentions},
        "fc1": "mlp.up_proj",
        "fc2": "mlp.down_proj",
        "final_layer_norm": "mlp_norm",
    }.items()
)
BODY = (
    Rename("shared.weight", "encoder.embeddings.embed_tokens.weight"),
    Rename("decoder.embed_tokens", "decoder.embeddings.embed_tokens"),
    *BLOCKS,
)
#: the encoder's own is the one that is read, should it ever be another than the shared one
SYNONYMS = {"encoder.embed_tokens.weight": "shared.weight"}
IGNORED = ("encoder.version", "decoder.version")
SINUSOIDS = ("embed_positions.weight",)
LANGUAGE_MODEL = (Rename("lm_head.weight", "lm_head.weight"), Row("final_logits_bias", "lm_head.bias"))
READ_BY = {
    "final_logits_bias": (zoo.TfmEncoderDecoderForConditionalGeneration,),
    "classifier_dropout": (zoo.TfmEncoderDecoderForSequenceClassification,),
}
#: what native classes need not be told: their bias is zero where the zoo's model has none
FREE = ("final_logits_bias",)
OPTIONAL = ("lm_head.bias",)


def is_shared(fields: dict[str, Any]) -> bool:
    """Whether source and target share their embeddings: with `tie_word_embeddings=False` nothing is tied."""
    return fields.get("share_encoder_decoder_embeddings", True) and fields["tie_word_embeddings"]


MARIAN = Architecture(
    model_type="marian",
    title="Marian",
    prefix="model",
    fields=FIELDS | same("vocab_size", "decoder_vocab_size"),
    readings={
        "share_encoder_decoder_embeddings": Reading(
            is_shared, lambda shared: {"share_encoder_decoder_embeddings": shared}
        )
    },
    constants=CONSTANTS
    | {"position_embedding_type": "sinusoidal", "sinusoid_type": "halves", "final_logits_bias": True},
    required=REQUIRED,
    equal=EQUAL,
    body=BODY,
    heads=(
        Head("MarianModel", zoo.TfmEncoderDecoderModel),
        Head("MarianMTModel", zoo.TfmEncoderDecoderForConditionalGeneration, LANGUAGE_MODEL),
    ),
    synonyms=SYNONYMS,
    ignored=IGNORED,
    sinusoids=SINUSOIDS,
    read_by=READ_BY,
    free=FREE,
    optional=OPTIONAL,
    tokenizer="MarianTokenizer",
)
