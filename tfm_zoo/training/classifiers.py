"""A sequence classifier with its tokenizer, from any checkpoint or from nothing."""

import logging
from dataclasses import dataclass
from typing import Literal

import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

import tfm_zoo
from tfm_zoo.training.arguments import option
from tfm_zoo.training.generated import word_piece_tokenizer

logger = logging.getLogger(__name__)

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
FRESH = "fresh"


@dataclass
class ModelArguments:
    """Which checkpoint to start from, and as what."""

    model_name_or_path: str | None = option(
        None,
        f"Zoo or official checkpoint, Hub id or folder; default: {DEFAULT_MODEL}. '{FRESH}', the default with the"
        " built-in data: a small new model, with a tokenizer made from the training texts.",
    )
    tokenizer_name: str | None = option(None, "Tokenizer, if not the checkpoint's.")
    model_class: Literal["zoo", "native"] = option(
        "zoo", "'native' leaves an official checkpoint in its native class, to compare the two."
    )
    ignore_mismatched_sizes: bool = option(False, "Replace a classification head that has other labels.")
    trust_remote_code: bool = option(False, "Run code that a checkpoint on the Hub brings along.")


def load_classifier(args: ModelArguments, label_names: list[str]) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The checkpoint with a head for these labels: a new one, or its own if that has the same labels.

    An official checkpoint becomes a zoo model, unless `model_class` says "native". Weights are float32, whatever the
    checkpoint's are: AdamW's small steps vanish in half precision, and `mixed_precision` casts what can be cast.

    Raises:
        ValueError: if the checkpoint's head has another number of labels and `ignore_mismatched_sizes` is not set.
    """
    name = args.model_name_or_path
    try:
        config = AutoConfig.from_pretrained(name, trust_remote_code=args.trust_remote_code)
    except OSError as error:
        raise OSError(f"model_name_or_path {name!r}: neither a checkpoint folder nor one the Hub gave") from error
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

    if config.model_type.startswith("tfm_") or args.model_class == "native":
        model = AutoModelForSequenceClassification.from_pretrained(
            name,
            trust_remote_code=args.trust_remote_code,
            ignore_mismatched_sizes=args.ignore_mismatched_sizes,
            dtype=torch.float32,
            **labels,
        )
    else:
        source = AutoModel.from_pretrained(name) if misfit else name  # without its head
        model = tfm_zoo.from_official(source, tfm_zoo.TfmBertForSequenceClassification, dtype=torch.float32, **labels)
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer_name or name, trust_remote_code=args.trust_remote_code)
    if len(tokenizer) > model.config.vocab_size:
        raise ValueError(
            f"tokenizer {args.tokenizer_name or name!r} has {len(tokenizer)} tokens, more than the"
            f" {model.config.vocab_size} of {name!r}"
        )
    return model, tokenizer


def fresh_classifier(
    args: ModelArguments, label_names: list[str], texts: list[str], max_length: int
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A small encoder with new weights (2 layers of 64), and the tokenizer asked for, or one made from the texts."""
    if args.tokenizer_name:
        tokenizer = AutoTokenizer.from_pretrained(args.tokenizer_name, trust_remote_code=args.trust_remote_code)
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


def longest_input(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int:
    """How many tokens model and tokenizer take."""
    positions = getattr(config, "max_position_embeddings", None) or tokenizer.model_max_length
    # RoBERTa's positions begin after the padding's.
    from_padding = config.model_type in ("roberta", "xlm-roberta", "camembert")
    if from_padding or getattr(config, "position_ids_from_padding", False):
        positions -= config.pad_token_id + 1
    return min(positions, tokenizer.model_max_length)


def _labels(names: list[str]) -> dict:
    return {
        "num_labels": len(names),
        "id2label": dict(enumerate(names)),
        "label2id": {name: index for index, name in enumerate(names)},
    }
