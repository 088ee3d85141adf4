"""Encoders whose own code no longer loads: MosaicBERT (Portes et al. 2023) with DNABERT-2 (Zhou et al. 2023),
which is one for genomes, and Jina v2 (Günther et al. 2023).

Both are BERT with a symmetric ALiBi in place of positions and a gated feed-forward. transformers has no class for them:
they are converted by the names of their checkpoints' tensors, and the code that checkpoints carry or name is never run.
Their `config.json` says `bert`.
"""

from ..architecture import Architecture, Head
from ..config_rules import Computed, Field, Fields, amended, constants, ignored, only
from ..tensor_rules import NotConverted, Rename, Split, TensorRule
from .bert import (
    BERT_MASKED_LM,
    CLASSIFIER,
    ENCODER,
    FIELDS,
    HAS_SEGMENTS,
    QUESTION_ANSWERING,
    SEQUENCE_CLASSIFIER,
    TENSORS,
    classifier_rate,
)
from .projections import QKV

CONFIG = (
    *amended(
        FIELDS,
        *(Field("hidden_dropout_prob", f"{part}_dropout") for part in ("embedding", "attention_output", "activation")),
        Computed("classifier_dropout", classifier_rate),
        *constants(hidden_dropout=0.0, position_embedding_type="alibi"),
        *constants(mlp_type="gated", mlp_bias=False, mlp_output_bias=True),
    ),
    *ENCODER,
    *only(hidden_act="gelu"),  # feed-forwards have it whatever the configuration says
    HAS_SEGMENTS,
)
MLP = "encoder.layer.{i}.mlp"
GATED = (
    Split(f"{MLP}.gated_layers.weight", tuple(f"layers.{{i}}.mlp.{name}_proj.weight" for name in ("gate", "up"))),
    Rename(f"{MLP}.wo", "layers.{i}.mlp.down_proj"),
    Rename(f"{MLP}.layernorm", "layers.{i}.mlp_norm"),
    NotConverted("encoder.alibi"),
    *TENSORS,
)
POOLER = Rename("bert.pooler.dense", "model.pooler.dense")
TEXT_CLASSIFIER = (Rename("bert.pooler.dense", "classifier.dense"), SEQUENCE_CLASSIFIER)


def is_mosaic(fields: Fields) -> bool:
    return "alibi_starting_size" in fields


def is_jina(fields: Fields) -> bool:
    return fields.get("position_embedding_type") == "alibi"


def alibi_encoder(model_type: str, title: str, name: str, **options) -> Architecture:
    """The table of checkpoints whose own classes have names that begin with `name`."""
    return Architecture(
        model_type=model_type,
        variant_of="bert",
        title=title,
        prefix="bert",
        heads=(
            Head(f"{name}Model", "TfmBertModel", (POOLER,)),
            Head(f"{name}ForMaskedLM", "TfmBertForMaskedLM", BERT_MASKED_LM),
            Head(f"{name}ForSequenceClassification", "TfmBertForSequenceClassification", TEXT_CLASSIFIER),
            Head(f"{name}ForTokenClassification", "TfmBertForTokenClassification", (CLASSIFIER,)),
            Head(f"{name}ForQuestionAnswering", "TfmBertForQuestionAnswering", (QUESTION_ANSWERING,)),
        ),
        tokenizer="BertTokenizer",
        library="none",
        **options,
    )


def packed(*rules: TensorRule) -> tuple[TensorRule, ...]:
    return (Split("encoder.layer.{i}.attention.self.Wqkv", QKV), *rules)


MOSAIC_BERT = alibi_encoder(
    *("mosaic_bert", "MosaicBERT (DNABERT-2)", "Bert"), is_variant=is_mosaic, config=CONFIG, tensors=packed(*GATED)
)
JINA_V2 = alibi_encoder(
    *("jina_bert", "Jina v2", "JinaBert"),
    is_variant=is_jina,
    config=(*CONFIG, *only(feed_forward_type="geglu"), *ignored("emb_pooler")),
    tensors=GATED,
)
