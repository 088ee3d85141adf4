"""DeBERTa (He et al. 2020), and its versions 2 and 3 (He et al. 2021), among them mDeBERTa."""

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
    only,
    same,
)
from ..tensor_rules import NotConverted, Rename, SplitHeads, TensorRule
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


class OneWidth(ConfigRule):
    """Embeddings, heads and poolers, whose widths old configurations may name, are as wide as the model."""

    zoo = None

    def refused(self, official: Fields) -> dict[str, str]:
        width, heads = official["hidden_size"], official["num_attention_heads"]
        widths = {"embedding_size": width, "pooler_hidden_size": width, "attention_head_size": width // heads}
        return {name: str(wanted) for name, wanted in widths.items() if official.get(name, wanted) != wanted}


CONFIG = amended(
    FIELDS,
    *same("pooler_dropout"),
    Field("pooler_hidden_act", "pooler_act"),
    Computed("classifier_dropout", classifier_rate, lambda rate: {"cls_dropout": rate}),
    Computed("position_embedding_type", position_type, lambda kind: {"position_biased_input": kind == "learned"}),
    Computed("pos_att_type", products),
    Computed("max_relative_positions", most, lambda number: {"max_relative_positions": number}),
    Computed("tie_word_embeddings", is_tied, lambda tied: {"tie_word_embeddings": tied, "legacy": True}),
    *constants(add_pooling_layer=False),
    *only(relative_attention=True),
    Always("relative_attention", True),
    Requires(
        "pos_att_type", lambda names: sorted(names or ()) in (["c2p"], ["p2c"], ["c2p", "p2c"]), "c2p, p2c or both"
    ),
    OneWidth(),
)
MASKED_LM = (
    Rename("cls.predictions.transform.dense", "head.dense", also="lm_predictions.lm_head.dense"),
    Rename("cls.predictions.transform.LayerNorm", "head.norm", also="lm_predictions.lm_head.LayerNorm"),
    Rename("cls.predictions.decoder.weight", "lm_head.weight"),
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
    model_type: str, title: str, name: str, config: tuple[ConfigRule, ...], tensors: tuple[TensorRule, ...]
) -> Architecture:
    """The table for official classes whose names begin with `name`."""
    heads = (
        Head(f"{name}Model", "TfmDebertaModel"),
        Head(f"{name}ForMaskedLM", "TfmDebertaForMaskedLM", MASKED_LM),
        Head(f"{name}ForSequenceClassification", "TfmDebertaForSequenceClassification", TEXT_CLASSIFIER),
        Head(f"{name}ForTokenClassification", "TfmDebertaForTokenClassification", (CLASSIFIER,), TOKEN_DROPOUT),
        Head(f"{name}ForQuestionAnswering", "TfmDebertaForQuestionAnswering", (QUESTION_ANSWERING,), (LabelCount(2),)),
        Head(f"{name}ForMultipleChoice", "TfmDebertaForMultipleChoice", CHOICES),
    )
    return Architecture(
        model_type=model_type,
        title=title,
        prefix="deberta",
        config=(*CONFIG, *config),
        tensors=(Rename("encoder.rel_embeddings", "distances"), *tensors, *TENSORS),
        heads=heads if model_type == "deberta-v2" else heads[:-1],
        tokenizer=f"{name}Tokenizer",
    )


DEBERTA_V2 = deberta(
    *("deberta-v2", "DeBERTa v2 and v3", "DebertaV2"),
    (
        with_default("share_att_key", False),
        with_default("position_buckets", -1, none=-1),
        Computed("norm_rel_ebd", norm_of_distances),
        *(with_default(*pair) for pair in {"conv_kernel_size": 0, "conv_groups": 1, "conv_act": "tanh"}.items()),
    ),
    (
        *(
            Rename(f"{ATTENTION}.{name}_proj", f"layers.{{i}}.self_attn.{name[0]}_proj")
            for name in ("query", "key", "value")
        ),
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
        *constants(share_att_key=False, position_buckets=None, norm_rel_ebd="none", key_bias=False, conv_kernel_size=0),
        *only(talking_head=False),
    ),
    (
        SplitHeads(f"{ATTENTION}.in_proj.weight", tuple(f"{name}.weight" for name in QKV), by_group=True),
        Rename(f"{ATTENTION}.q_bias", "layers.{i}.self_attn.q_proj.bias"),
        Rename(f"{ATTENTION}.v_bias", "layers.{i}.self_attn.v_proj.bias"),
        Rename(f"{ATTENTION}.pos_proj", "layers.{i}.self_attn.pos_key_proj"),
        Rename(f"{ATTENTION}.pos_q_proj", "layers.{i}.self_attn.pos_query_proj"),
    ),
)
