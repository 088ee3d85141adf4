"""DeBERTa (He et al. 2020), and its versions 2 and 3 (He et al. 2021), among them mDeBERTa; and what is left of these
without their distances, which is BERT."""

from dataclasses import dataclass
from typing import Any

from ..architecture import Architecture, Head
from ..config_rules import (
    Always,
    Computed,
    ConfigRule,
    Field,
    Fields,
    LabelCount,
    Requires,
    amended,
    constants,
    ignored,
    only,
    same,
)
from ..tensor_rules import NotConverted, Rename, SplitHeads, TensorRule, When
from .bert import CLASSIFIER, FIELDS, QUESTION_ANSWERING, SEQUENCE_CLASSIFIER, TENSORS
from .projections import QKV

ATTENTION = "encoder.layer.{i}.attention.self"


def with_default(name: str, default: Any, zoo: str | None = None, none: Any = None) -> Computed:
    """A field that an official configuration may lack; its value `none` is `None` in the zoo."""

    def read(official: Fields) -> Any:
        value = official.get(name, default)
        return None if value == none else value

    return Computed(zoo or name, read, lambda value: {name: none if value is None else value})


def most(official: Fields) -> int:
    """The distance from which on all are alike."""
    number = official.get("max_relative_positions", -1)
    return number if number > 0 else official["max_position_embeddings"]


def classifier_rate(official: Fields) -> float:
    rate = official.get("cls_dropout")
    return official["hidden_dropout_prob"] if rate is None else rate


def products(official: Fields) -> list[str]:
    return sorted(official.get("pos_att_type") or ())


def position_type(official: Fields) -> str:
    return "learned" if official.get("position_biased_input", True) else "none"


def norm_of_distances(official: Fields) -> str:
    return "layer_norm" if "layer_norm" in official.get("norm_rel_ebd", "none").lower().split("|") else "none"


def is_tied(official: Fields) -> bool:
    """The newer of two heads for masked tokens, which have the same layers under different names, is always tied."""
    is_older = official.get("legacy", True)
    return official.get("tie_word_embeddings", True) or not is_older


def embedding_size(official: Fields) -> int:
    return official.get("embedding_size", official["hidden_size"])


def is_narrow(config: Any) -> bool:
    return config.embedding_size != config.hidden_size


@dataclass(frozen=True)
class OneWidth(ConfigRule):
    """Heads and poolers, whose widths old configurations may name, are as wide as the model."""

    takes_narrow_embeddings: bool = True
    zoo = None

    def refused(self, official: Fields) -> dict[str, str]:
        width, heads = official["hidden_size"], official["num_attention_heads"]
        widths = {"pooler_hidden_size": width, "attention_head_size": width // heads}
        widths |= {} if self.takes_narrow_embeddings else {"embedding_size": width}
        return {name: str(wanted) for name, wanted in widths.items() if official.get(name, wanted) != wanted}


BOTH = amended(
    FIELDS,
    *same("pooler_dropout"),
    Field("pooler_hidden_act", "pooler_act"),
    Computed("classifier_dropout", classifier_rate, lambda rate: {"cls_dropout": rate}),
    Computed("position_embedding_type", position_type, lambda kind: {"position_biased_input": kind == "learned"}),
    Computed("tie_word_embeddings", is_tied, lambda tied: {"tie_word_embeddings": tied, "legacy": True}),
    *constants(add_pooling_layer=False),
)
CONFIG = (
    *BOTH,
    OneWidth(),
    Computed("embedding_size", embedding_size),
    *constants(project_before_norm=lambda zoo: zoo["embedding_size"] != zoo["hidden_size"]),
    Computed("pos_att_type", products),
    Computed("max_relative_positions", most, lambda number: {"max_relative_positions": number}),
    *only(relative_attention=True),
    Always("relative_attention", True),
    Requires(
        "pos_att_type", lambda names: sorted(names or ()) in (["c2p"], ["p2c"], ["c2p", "p2c"]), "c2p, p2c or both"
    ),
)
MASKED_LM = (
    Rename("cls.predictions.transform.dense", "head.dense", also="lm_predictions.lm_head.dense"),
    Rename("cls.predictions.transform.LayerNorm", "head.norm", also="lm_predictions.lm_head.LayerNorm"),
    # transformers made a tensor of the second name in memory, until 5.20.
    Rename("cls.predictions.decoder.weight", "lm_head.weight", also="lm_predictions.lm_head.weight"),
    Rename(
        "cls.predictions.bias",
        "lm_head.bias",
        also=("cls.predictions.decoder.bias", "lm_predictions.lm_head.bias"),
    ),
    NotConverted("mask_predictions.{name}"),  # DeBERTa v3's discriminator, which no official class has
)
TEXT_CLASSIFIER = (Rename("pooler.dense", "classifier.dense"), SEQUENCE_CLASSIFIER)
CHOICES = (Rename("pooler.dense", "model.pooler.dense"), CLASSIFIER)
#: this official class uses the dropout of hidden states, whatever `cls_dropout` says
TOKEN_DROPOUT = constants(classifier_dropout=None)


def deberta(
    model_type: str,
    title: str,
    name: str,
    config: tuple[ConfigRule, ...],
    tensors: tuple[TensorRule, ...],
    zoo: str = "TfmDeberta",
    **options: Any,
) -> Architecture:
    """The table for official classes whose names begin with `name`; those of the zoo begin with `zoo`."""
    heads = (
        Head(f"{name}Model", f"{zoo}Model"),
        Head(f"{name}ForMaskedLM", f"{zoo}ForMaskedLM", MASKED_LM),
        Head(f"{name}ForSequenceClassification", f"{zoo}ForSequenceClassification", TEXT_CLASSIFIER),
        Head(f"{name}ForTokenClassification", f"{zoo}ForTokenClassification", (CLASSIFIER,), TOKEN_DROPOUT),
        Head(f"{name}ForQuestionAnswering", f"{zoo}ForQuestionAnswering", (QUESTION_ANSWERING,), (LabelCount(2),)),
        Head(f"{name}ForMultipleChoice", f"{zoo}ForMultipleChoice", CHOICES),
    )
    return Architecture(
        model_type=model_type,
        title=title,
        prefix="deberta",
        config=config,
        tensors=(*tensors, *TENSORS),
        heads=heads if name == "DebertaV2" else heads[:-1],
        tokenizer=f"{name}Tokenizer",
        **options,
    )


DISTANCES = (
    Rename("encoder.rel_embeddings", "distances"),
    Rename("embeddings.embed_proj", "embeddings.norm.projection"),
    When("embeddings.LayerNorm", "embeddings.norm.norm", condition=is_narrow),
)
PROJECTIONS = tuple(
    Rename(f"{ATTENTION}.{name}_proj", f"layers.{{i}}.self_attn.{name[0]}_proj") for name in ("query", "key", "value")
)


DEBERTA_V2 = deberta(
    *("deberta-v2", "DeBERTa v2 and v3", "DebertaV2"),
    (
        *CONFIG,
        with_default("share_att_key", False),
        with_default("position_buckets", -1, none=-1),
        Computed("norm_rel_ebd", norm_of_distances),
        *(with_default(*pair) for pair in {"conv_kernel_size": 0, "conv_groups": 1, "conv_act": "tanh"}.items()),
    ),
    (
        *DISTANCES,
        *PROJECTIONS,
        *(
            Rename(f"{ATTENTION}.{name}", f"layers.{{i}}.self_attn.{name}")
            for name in ("pos_key_proj", "pos_query_proj")
        ),
        Rename("encoder.LayerNorm", "distances.norm"),
        Rename("encoder.conv.conv", "layers.0.conv.conv"),
        Rename("encoder.conv.LayerNorm", "layers.0.conv.norm"),
    ),
)
DEBERTA = deberta(
    *("deberta", "DeBERTa", "Deberta"),
    (
        *CONFIG,
        *constants(share_att_key=False, position_buckets=None, norm_rel_ebd="none", key_bias=False, conv_kernel_size=0),
        *only(talking_head=False),
    ),
    (
        *DISTANCES,
        SplitHeads(f"{ATTENTION}.in_proj.weight", tuple(f"{name}.weight" for name in QKV), by_group=True),
        Rename(f"{ATTENTION}.q_bias", "layers.{i}.self_attn.q_proj.bias"),
        Rename(f"{ATTENTION}.v_bias", "layers.{i}.self_attn.v_proj.bias"),
        Rename(f"{ATTENTION}.pos_proj", "layers.{i}.self_attn.pos_key_proj"),
        Rename(f"{ATTENTION}.pos_q_proj", "layers.{i}.self_attn.pos_query_proj"),
    ),
)


def has_no_distances(fields: Fields) -> bool:
    return not fields.get("relative_attention", False)


DEBERTA_ABSOLUTE = deberta(
    *("deberta-v2-absolute", "DeBERTa v2 without distances", "DebertaV2"),
    (
        *BOTH,
        OneWidth(takes_narrow_embeddings=False),
        Always("relative_attention", False),
        Requires("pos_att_type", lambda names: not names, "None: it would scale scores"),
        Requires("norm_rel_ebd", lambda name: name == "none", "'none'"),
        *only(conv_kernel_size=0),
        *ignored("max_relative_positions", "position_buckets", "share_att_key"),
    ),
    PROJECTIONS,
    zoo="TfmBert",
    variant_of="deberta-v2",
    is_variant=has_no_distances,
)
