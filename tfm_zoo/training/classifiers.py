"""A sequence classifier with its tokenizer, from any checkpoint or from nothing."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from transformers import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    AutoModel,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

import tfm_zoo
from tfm_zoo.training.arguments import option
from tfm_zoo.training.models import WEIGHTS, check_vocabulary, load_config, load_tokenizer
from tfm_zoo.training.new_models import NewModelArguments, check_has_head, new_config, tokens_to_learn
from tfm_zoo.training.tokenizers import word_piece_tokenizer

logger = logging.getLogger(__name__)

VOCAB_SIZE = 8000  # of a tokenizer made from the training texts
DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"


@dataclass
class ClassifierArguments(NewModelArguments):
    """Which checkpoint to start from, or which new model to make."""

    small_fields: ClassVar = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 256,
    }

    model_name_or_path: str | None = option(
        None,
        f"Zoo or official checkpoint, Hub id or folder; default: {DEFAULT_MODEL}, or with the built-in data a small"
        " new model.",
    )
    tokenizer_vocab_size: int | None = option(
        None,
        "Tokens, or fewer, of a tokenizer made from the training texts, their words; default: as many as the"
        f" configuration named has, or {VOCAB_SIZE}.",
    )
    ignore_mismatched_sizes: bool = option(False, "Replace a classification head that has other labels.")
    classifier_pooling: Literal["cls", "mean"] | None = option(
        None,
        "What the head of a zoo encoder reads: the first position, or the mean of all tokens, which says more of a text"
        " where pre-training was short, but which no native class does; default: as the configuration has it.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classifier_pooling and self.model_class == "native":
            raise ValueError("classifier_pooling is for encoders of the zoo, not for model_class 'native'")
        if self.classifier_pooling and "classifier_pooling" in self.overrides():
            raise ValueError("give classifier_pooling either by itself or in config_overrides, not both")

    @property
    def small_type(self) -> str:
        return "bert" if self.model_class == "native" else "tfm_bert"

    def pooling(self, config: PreTrainedConfig) -> dict[str, str]:
        """`classifier_pooling` as a field of the model that a configuration leads to, if it is given.

        Raises:
            ValueError: if that model is no encoder.
        """
        if self.classifier_pooling is None:
            return {}
        if self.stays_as_it_is(config) and config.model_type != "tfm_bert":
            raise ValueError(f"classifier_pooling is for encoders, and {config.model_type!r} is not one")
        return {"classifier_pooling": self.classifier_pooling}


def load_classifier(
    args: ClassifierArguments, label_names: list[str]
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The checkpoint with a head for these labels: a new one, or its own if that has the same labels.

    Raises:
        ValueError: if the checkpoint's head has another number of labels and `ignore_mismatched_sizes` is not set.
    """
    name = args.model_name_or_path
    config = load_config(args, name)
    has_head = any("ForSequenceClassification" in architecture for architecture in config.architectures or [])
    misfit = has_head and config.num_labels != len(label_names)
    if misfit and not args.ignore_mismatched_sizes:
        raise ValueError(
            f"{name!r} classifies into {config.num_labels} labels {list(config.label2id)} and the data have"
            f" {len(label_names)}: {label_names}; ignore_mismatched_sizes replaces its head"
        )
    if has_head and set(config.label2id) == set(label_names):
        label_names = [config.id2label[index] for index in range(len(label_names))]
    elif has_head and not misfit and not all(name.startswith("LABEL_") for name in config.label2id):
        logger.warning(f"{name!r} classifies into {list(config.label2id)}: its head now learns {label_names}")
    fields = _labels(label_names) | args.pooling(config)

    if args.stays_as_it_is(config):
        fields["ignore_mismatched_sizes"] = args.ignore_mismatched_sizes
        model = AutoModelForSequenceClassification.from_pretrained(name, **args.for_loading(), **fields)
    else:
        source = AutoModel.from_pretrained(name) if misfit else name  # without its head
        model = tfm_zoo.from_official(source, tfm_zoo.TfmBertForSequenceClassification, dtype=WEIGHTS, **fields)
    tokenizer = load_tokenizer(args, name)
    check_vocabulary(tokenizer, model.config)
    return model, tokenizer


def new_classifier(
    args: ClassifierArguments, label_names: list[str], texts: Iterable[str], max_length: int
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model with new weights and a head for these labels, and the tokenizer asked for, or one made from the texts.

    A configuration of an official architecture makes a model of the native class, which is then converted, unless
    `model_class` is "native": with the same seed the two start with the same weights.

    Args:
        max_length: positions of a small model.
    """
    if args.tokenizer_name:
        tokenizer = load_tokenizer(args)
    else:
        tokenizer = word_piece_tokenizer(texts, tokens_to_learn(args, VOCAB_SIZE))
        tokenizer.model_max_length = max_length
    fields = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id, **_labels(label_names)}
    if not args.is_named:
        fields["max_position_embeddings"] = max_length
    config = new_config(args, fields)
    check_has_head(
        config,
        "AutoModelForSequenceClassification",
        MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
        "sequence classifier",
    )
    check_vocabulary(tokenizer, config)
    is_converted, pooling = not args.stays_as_it_is(config), args.pooling(config)
    config.update({} if is_converted else pooling)
    model = AutoModelForSequenceClassification.from_config(
        config, dtype=WEIGHTS, trust_remote_code=args.trust_remote_code
    )
    if is_converted:
        model = tfm_zoo.from_official(model, tfm_zoo.TfmBertForSequenceClassification, **pooling)
    return model, tokenizer


def reads_mean(config: PreTrainedConfig) -> bool:
    """Whether a classifier's head reads the mean of all tokens."""
    return getattr(config, "classifier_pooling", None) == "mean"


def _labels(names: list[str]) -> dict:
    return {
        "num_labels": len(names),
        "id2label": dict(enumerate(names)),
        "label2id": {name: index for index, name in enumerate(names)},
    }
