"""A sequence classifier with its tokenizer, from any checkpoint or from nothing."""

import logging
from dataclasses import dataclass

from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

import tfm_zoo
from tfm_zoo.training.arguments import option
from tfm_zoo.training.models import WEIGHTS, ModelArguments, check_vocabulary, load_config, load_tokenizer
from tfm_zoo.training.tokenizers import word_piece_tokenizer

logger = logging.getLogger(__name__)

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
FRESH = "fresh"


@dataclass
class ClassifierArguments(ModelArguments):
    """Which checkpoint to start from, and as what."""

    model_name_or_path: str | None = option(
        None,
        f"Zoo or official checkpoint, Hub id or folder; default: {DEFAULT_MODEL}. '{FRESH}', the default with the"
        " built-in data: a small new model, with a tokenizer made from the training texts.",
    )
    ignore_mismatched_sizes: bool = option(False, "Replace a classification head that has other labels.")


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
    labels = _labels(label_names)

    if args.stays_as_it_is(config):
        labels["ignore_mismatched_sizes"] = args.ignore_mismatched_sizes
        model = AutoModelForSequenceClassification.from_pretrained(name, **args.for_loading(), **labels)
    else:
        source = AutoModel.from_pretrained(name) if misfit else name  # without its head
        model = tfm_zoo.from_official(source, tfm_zoo.TfmBertForSequenceClassification, dtype=WEIGHTS, **labels)
    tokenizer = load_tokenizer(args, name)
    check_vocabulary(tokenizer, model.config)
    return model, tokenizer


def fresh_classifier(
    args: ClassifierArguments, label_names: list[str], texts: list[str], max_length: int
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A small encoder with new weights (2 layers of 64), and the tokenizer asked for, or one made from the texts."""
    if args.tokenizer_name:
        tokenizer = load_tokenizer(args)
    else:
        tokenizer = word_piece_tokenizer(texts)
        tokenizer.model_max_length = max_length
    sizes = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 256,
        "max_position_embeddings": max_length,
        "pad_token_id": tokenizer.pad_token_id,
        **_labels(label_names),
    }
    if args.model_class == "native":
        return BertForSequenceClassification(BertConfig(**sizes)), tokenizer
    return tfm_zoo.TfmBertForSequenceClassification(tfm_zoo.TfmBertConfig(**sizes)), tokenizer


def _labels(names: list[str]) -> dict:
    return {
        "num_labels": len(names),
        "id2label": dict(enumerate(names)),
        "label2id": {name: index for index, name in enumerate(names)},
    }
