"""Configuration of the encoder family."""

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict

from .configuration_checks import ACTIVATION, RATE, RULES, SCORES, Idle, Rule, each, needs, tokens
from .configuration_tfm import EXPERTS, TWO_STACKS, TfmConfig, follows, stored
from .engines import serves_encoder, window_in_engine


def has_prediction_head(config: Any) -> bool:
    """Whether a head has a dense layer and activation before its projection onto tokens or classes."""
    return config.lm_head_transform or config.classifier_transform


def shared_layers(config: Any) -> Iterator[str]:
    """Layers that share their weights are alike."""
    if not 1 <= config.num_hidden_groups <= config.num_hidden_layers:
        yield "$num_hidden_groups should be from 1 to $num_hidden_layers, the layers that it divides."
    layers = {*zip(config.layer_types, config.no_rope_layers, strict=True)}
    if config.num_hidden_groups < config.num_hidden_layers and not (len(layers) == 1 and config.first_norm):
        yield (
            "$num_hidden_groups makes layers share their weights, but $layer_types, $no_rope_layers and $first_norm "
            "make them differ."
        )


@strict
class TfmBertConfig(TfmConfig):
    """Configuration of the encoder family. The defaults are BERT-base (Devlin et al. 2018)."""

    model_type = "tfm_bert"
    modeling_file: ClassVar[str] = "modeling_tfm_bert"
    auto_classes: ClassVar[dict[str, str]] = {
        "AutoConfig": "TfmBertConfig",
        "AutoModel": "TfmBertModel",
        "AutoModelForTextEncoding": "TfmBertModel",
        "AutoModelForPreTraining": "TfmBertForPreTraining",
        "AutoModelForMaskedLM": "TfmBertForMaskedLM",
        "AutoModelForNextSentencePrediction": "TfmBertForNextSentencePrediction",
        "AutoModelForSequenceClassification": "TfmBertForSequenceClassification",
        "AutoModelForTokenClassification": "TfmBertForTokenClassification",
        "AutoModelForQuestionAnswering": "TfmBertForQuestionAnswering",
        "AutoModelForMultipleChoice": "TfmBertForMultipleChoice",
    }
    other_auto_classes: ClassVar[dict[str, str]] = {"TfmBertForReplacedTokenDetection": "AutoModelForPreTraining"}
    lacks: ClassVar[tuple[str, ...]] = (
        *(*EXPERTS, *TWO_STACKS),
        *("position_ids_from_mask", "position_offset", "project_tokens", "scale_alibi", "round_alibi"),
        *("logit_scale", "final_logit_softcapping", "renew_longrope_cache"),
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        *(*RULES, SCORES),
        Idle("task_type_vocab_size", lambda config: config.type_vocab_size, "segments (type_vocab_size)"),
        tokens("dropped_token_id", "vocab_size", "the vocabulary"),
        each("pooler_dropout sentence_dropout qa_dropout", *RATE),
        each("pooler_act lm_head_act", *ACTIVATION),
        needs("classifier_norm", "classifier_dense", True),
        Idle("lm_head_act", has_prediction_head, "lm_head_transform or classifier_transform"),
        shared_layers,
        serves_encoder,
    )

    embedding_norm: bool = True
    norm_eps: float = 1e-12
    pad_token_id: int | None = 0
    type_vocab_size: int = 2
    lm_head_bias: bool = True
    lm_head_transform: bool = True
    num_hidden_groups: int | None = follows("num_hidden_layers")
    # transformers iterates over it for an Auto class with two classes (`other_auto_classes`), even where it is `None`.
    architectures: list[str] | None = follows(lambda config: [])

    add_pooling_layer: bool = True  # whether the bare `TfmBertModel` has a pooler. Heads that read one always have it
    pooler_act: str = "tanh"  # of the pooler, or of the classifier in its place (DistilBERT: `"relu"`)
    pooler_dropout: float | int = 0.0  # before the pooler or that classifier (RoBERTa)
    #: what the pooler or that classifier reads: `"cls"`, the first token; `"mean"` of the real tokens; `"attention"`,
    #: a mean weighted by the softmax of their products with one learned query; or `"late"`, each real token, whose
    #: outputs are then averaged (EuroBERT)
    classifier_pooling: Literal["cls", "mean", "attention", "late"] = "cls"
    classifier_bias: bool = True  # in the dense layers of the pooler, of that classifier, and of `lm_head_transform`
    classifier_norm: bool = False  # after the activation of the pooler, or of the classifier in its place (ModernBERT)
    #: whether the heads for tokens and for answers have the layers of `lm_head_transform` too
    classifier_transform: bool = False
    sentence_dropout: float | int = 0.0  # before the classifier of sentences in pre-training (ALBERT)
    qa_dropout: float | int = 0.0  # before the question-answering head
    lm_head_act: str | None = follows("hidden_act")  # of the masked-language-modelling head


TfmBertConfig.sliding_window = stored("sliding_window", window_in_engine)
