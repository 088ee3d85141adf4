"""BART (Lewis et al. 2019), and mBART (Liu et al. 2020): BART with pre-norm, for many languages."""

from functools import partial

from ..models import modeling_tfm_encoder_decoder as zoo
from .architecture import Architecture, Head
from .marian import (
    BODY,
    CONSTANTS,
    EQUAL,
    FIELDS,
    FREE,
    IGNORED,
    LANGUAGE_MODEL,
    OPTIONAL,
    READ_BY,
    REQUIRED,
    SYNONYMS,
)
from .rules import Rename, same

SIDES = ("encoder", "decoder")
CLASSIFIER = tuple(
    Rename(f"classification_head.{name}", f"classification_head.{name}") for name in ("dense", "out_proj")
)
LEARNED_POSITIONS = {
    "position_embedding_type": "learned",
    "position_offset": 2,
    "embedding_norm": True,
    "final_logits_bias": True,
    "share_encoder_decoder_embeddings": lambda fields: fields["tie_word_embeddings"],
}


def heads(name: str) -> tuple[Head, ...]:
    return (
        Head(f"{name}Model", zoo.TfmEncoderDecoderModel),
        Head(f"{name}ForConditionalGeneration", zoo.TfmEncoderDecoderForConditionalGeneration, LANGUAGE_MODEL),
        Head(f"{name}ForSequenceClassification", zoo.TfmEncoderDecoderForSequenceClassification, CLASSIFIER),
    )


like_bart = partial(
    Architecture,
    prefix="model",
    fields=FIELDS | same("vocab_size", "classifier_dropout"),
    required=REQUIRED,
    equal=EQUAL,
    body=(
        *BODY,
        *(Rename(f"{side}.embed_positions", f"{side}.embeddings.embed_positions") for side in SIDES),
        *(Rename(f"{side}.layernorm_embedding", f"{side}.embeddings.norm") for side in SIDES),
        *(Rename(f"{side}.layer_norm", f"{side}.norm") for side in SIDES),
    ),
    synonyms=SYNONYMS,
    ignored=IGNORED,
    read_by=READ_BY,
    free=FREE,
    optional=OPTIONAL,
)

BART = like_bart(
    model_type="bart",
    title="BART",
    constants=CONSTANTS | LEARNED_POSITIONS,
    heads=heads("Bart"),
    tokenizer="BartTokenizer",
)
MBART = like_bart(
    model_type="mbart",
    title="mBART",
    constants=CONSTANTS | LEARNED_POSITIONS | {"norm_position": "pre", "start_with_last_token": True},
    heads=heads("MBart"),
    tokenizer="MBartTokenizer",
)
