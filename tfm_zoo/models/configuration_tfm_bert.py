"""Configuration of the encoder family."""

from collections.abc import Iterator
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict

from .configuration_checks import ACTIVATION, ENGINES, RATE, RULES, SCORES, Idle, Rule, each, needs, tokens
from .configuration_tfm import EncoderFields, Stored, TfmConfig, auto_classes_of


def shared_layers(config: Any) -> Iterator[str]:
    """Layers that share their weights are alike."""
    if not 1 <= config.num_hidden_groups <= config.num_hidden_layers:
        yield "$num_hidden_groups should be from 1 to $num_hidden_layers, the layers that it divides."
    layers = {*zip(config.layer_types, config.no_rope_layers, strict=True)}
    if config.num_hidden_groups < config.num_hidden_layers and not (len(layers) == 1 and config.first_norm):
        yield "$num_hidden_groups shares weights of layers whose $layer_types, $no_rope_layers or $first_norm differ."


def window_in_engine(config: Any, window: int | None) -> int | None:
    """A window as it is read: engines count the position itself too, so they read one more."""
    return window if window is None or config._attn_implementation not in ENGINES else window + 1


def serves_encoder(config: Any) -> Iterator[str]:
    """An engine computes what the encoder does."""
    if config._attn_implementation in ENGINES and config.dropped_token_id is not None:
        yield (
            "$dropped_token_id scales a sequence by its masks, and an engine packs several into a row: serve the model "
            "with transformers."
        )


@strict
class TfmBertConfig(EncoderFields, TfmConfig):
    """Configuration of the encoder family. The defaults are BERT-base (Devlin et al. 2018)."""

    model_type = "tfm_bert"
    modeling_file: ClassVar[str] = "modeling_tfm_bert"
    auto_classes: ClassVar[dict[str, str]] = auto_classes_of(
        "TfmBert",
        "PreTraining MaskedLM NextSentencePrediction SequenceClassification TokenClassification QuestionAnswering "
        "MultipleChoice",
        AutoModelForTextEncoding="TfmBertModel",
    )
    other_auto_classes: ClassVar[dict[str, str]] = {"TfmBertForReplacedTokenDetection": "AutoModelForPreTraining"}
    rules: ClassVar[tuple[Rule, ...]] = (
        *(*RULES, SCORES),
        Idle("task_type_vocab_size", "type_vocab_size"),
        tokens("dropped_token_id", "vocab_size", "the vocabulary"),
        each("pooler_dropout sentence_dropout qa_dropout", *RATE),
        each("pooler_act lm_head_act", *ACTIVATION),
        needs("classifier_norm", "classifier_dense", True),
        Idle("lm_head_act", "lm_head_transform classifier_transform"),
        shared_layers,
        serves_encoder,
    )

    embedding_norm: bool = True
    norm_eps: float = 1e-12
    pad_token_id: int | None = 0
    type_vocab_size: int = 2
    lm_head_bias: bool = True
    sliding_window: int | None = Stored(window_in_engine)
    position_offset: ClassVar[int]  # nothing but `pad_token_id` moves the first position
