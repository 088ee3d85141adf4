"""Labels, of whole texts or of words: their names in a model, and whether a checkpoint's head fits them."""

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedConfig

from tfm_zoo.training.arguments import option
from tfm_zoo.training.finetuning import FineTuningArguments
from tfm_zoo.training.models import Head, ModelAndTokenizer

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LabellingArguments(FineTuningArguments):
    """The options of a model whose head tells labels apart."""

    ignore_mismatched_sizes: bool = option(False, "Replace a classification head that has other labels.")


def load_with_labels(
    head: Head, args: LabellingArguments, config: PreTrainedConfig, label_names: list[str], **fields: Any
) -> ModelAndTokenizer:
    """The checkpoint with a head for these labels, and its tokenizer. Its own head is kept if it has as many labels.
    `config` is the checkpoint's configuration; `fields` are set in it."""
    name = args.model_name_or_path
    suffix = head.auto_class.__name__.removeprefix("AutoModel")  # such as "ForSequenceClassification"
    has_head = any(suffix in architecture for architecture in config.architectures or [])
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
    return head.load(args, replace_head, **label_fields(label_names), **fields)


def label_fields(names: list[str]) -> dict[str, Any]:
    """The fields of a configuration that name the labels."""
    ids = {name: index for index, name in enumerate(names)}
    return {"num_labels": len(names), "id2label": dict(enumerate(names)), "label2id": ids}


def in_order(names: Iterable[str]) -> list[str]:
    """Names in order: whole numbers by value, and after them all others by the alphabet."""
    return sorted(names, key=lambda name: (0, int(name), "") if re.fullmatch(r"-?\d+", name) else (1, 0, name))
