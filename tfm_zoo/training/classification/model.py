"""A sequence classifier with its tokenizer, from any checkpoint or with new weights."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from transformers import AutoModelForSequenceClassification, PreTrainedConfig
from typing_extensions import Self

import tfm_zoo
from tfm_zoo.training.arguments import option
from tfm_zoo.training.models import Head, ModelAndTokenizer, ModelArguments, new_tokenizer, vocabulary_option
from tfm_zoo.training.sources import DataArguments
from tfm_zoo.training.tokenizers import word_piece_tokenizer

logger = logging.getLogger(__name__)

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
HEAD = Head(AutoModelForSequenceClassification, tfm_zoo.TfmBertForSequenceClassification, "sequence classifier")


@dataclass(frozen=True)
class ClassifierArguments(ModelArguments):
    """Which checkpoint to start from, or which new model to make."""

    make_tokenizer: ClassVar = staticmethod(word_piece_tokenizer)

    model_name_or_path: str | None = option(
        None,
        f"Zoo or official checkpoint, Hub id or folder; default: {DEFAULT_MODEL}, or with the built-in data a small"
        " new model.",
    )
    tokenizer_vocab_size: int | None = vocabulary_option("of its frequent words")
    ignore_mismatched_sizes: bool = option(False, "Replace a classification head that has other labels.")
    classifier_pooling: Literal["cls", "mean", "attention"] | None = option(
        None,
        "What the head of a zoo encoder reads: the first position; the mean of all tokens, which says more of a text"
        " where pre-training was short, but which no official class does; or a mean weighted by a query that it learns;"
        " default: as the configuration has it.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classifier_pooling and self.model_class == "native":
            raise ValueError("classifier_pooling is for encoders of the zoo, not for model_class 'native'")
        if self.classifier_pooling and "classifier_pooling" in self.overrides():
            raise ValueError("give classifier_pooling either by itself or in config_overrides, not both")

    def resolved(self, data_args: DataArguments) -> Self:
        """These options with the default checkpoint, if they name no model and the data are not the built-in ones."""
        if self.model_name_or_path or self.new_model_options or data_args.is_generated:
            return self
        return replace(self, model_name_or_path=DEFAULT_MODEL)

    @property
    def small_type(self) -> str:
        return "bert" if self.model_class == "native" else "tfm_bert"

    def pooling(self, config: PreTrainedConfig) -> dict[str, str]:
        """`classifier_pooling` as a field of the model's configuration; empty if it is not given."""
        if self.classifier_pooling is None:
            return {}
        if not self.becomes_zoo(config) and config.model_type != "tfm_bert":
            raise ValueError(f"classifier_pooling is for encoders, and {config.model_type!r} is not one")
        return {"classifier_pooling": self.classifier_pooling}


def load_classifier(args: ClassifierArguments, label_names: list[str]) -> ModelAndTokenizer:
    """The checkpoint with a head for these labels, its own if that has as many of them; and its tokenizer."""
    name, config = args.model_name_or_path, HEAD.config_of_checkpoint(args)
    has_head = any("ForSequenceClassification" in architecture for architecture in config.architectures or [])
    is_misfit = has_head and config.num_labels != len(label_names)
    if is_misfit and not args.ignore_mismatched_sizes:
        raise ValueError(
            f"{name!r} classifies into {config.num_labels} labels {list(config.label2id)} and the data have"
            f" {len(label_names)}: {label_names}; ignore_mismatched_sizes replaces its head"
        )
    if has_head and set(config.label2id) == set(label_names):
        label_names = [config.id2label[index] for index in range(len(label_names))]
    elif has_head and not is_misfit and not all(label.startswith("LABEL_") for label in config.label2id):
        logger.warning(f"{name!r} classifies into {list(config.label2id)}: its head now learns {label_names}")

    replace_head = args.ignore_mismatched_sizes and (is_misfit or not has_head)
    return HEAD.load(args, replace_head, **label_fields(label_names), **args.pooling(config))


def new_classifier(
    args: ClassifierArguments, label_names: list[str], texts: Iterable[str], max_length: int
) -> ModelAndTokenizer:
    """A model with new weights and a head for these labels; and the tokenizer named, or one made from the texts."""
    tokenizer = new_tokenizer(args, texts)
    if not args.tokenizer_name:
        tokenizer.model_max_length = max_length
    positions = {} if args.is_named else {"max_position_embeddings": max_length}
    config = HEAD.new_config(args, tokenizer, **label_fields(label_names), **positions)
    pooling = args.pooling(config)
    if not args.becomes_zoo(config):
        config.update(pooling)
    return HEAD.new(args, config, **pooling), tokenizer


def label_fields(names: list[str]) -> dict[str, Any]:
    """The fields of a configuration that name the labels."""
    ids = {name: index for index, name in enumerate(names)}
    return {"num_labels": len(names), "id2label": dict(enumerate(names)), "label2id": ids}
