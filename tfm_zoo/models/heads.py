"""What heads share: checks of their labels, and the outputs that they return."""

import math

import torch
from torch import nn
from transformers.utils import ModelOutput

from .inputs import check_values
from .losses import IGNORED

VOCABULARY = "the vocabulary (vocab_size)"
NOT_PASSED_ON = ("last_hidden_state", "pooler_output", "router_logits")


def passed_on(outputs: ModelOutput) -> dict[str, object]:
    """The outputs of a base model that a head returns as they are."""
    return {name: value for name, value in outputs.items() if name not in NOT_PASSED_ON}


def answers(model: nn.Module, scores: torch.Tensor, *ends: torch.LongTensor | None) -> dict[str, torch.Tensor | None]:
    """`start_logits` and `end_logits` `(batch, length)` of scores `(batch, length, 2)`, and the loss of the answers, of
    which `ends` are the first and the last positions `(batch,)`."""
    start_logits, end_logits = (each.squeeze(-1).contiguous() for each in scores.split(1, dim=-1))
    loss = model.loss_function(start_logits, end_logits, *ends)
    return {"loss": loss, "start_logits": start_logits, "end_logits": end_logits}


def check_sequence_labels(config, tokens: torch.Tensor, labels: torch.Tensor | None) -> None:
    """Raises a `ValueError` unless `labels` are values, or one class each, of the sequences `(batch, length, ...)`."""
    if labels is not None:
        are_classes = labels.numel() == labels.shape[:1].numel() and not labels.is_floating_point()
        classes = config.num_labels if are_classes and config.num_labels > 1 else None
        check_labels(labels, tokens.shape[:1], classes)


def check_labels(
    labels: torch.Tensor | None,
    shape: tuple[int, ...],
    classes: int | None = None,
    table: str = "the classes (num_labels)",
    name: str = "labels",
    inputs: str = "the inputs",
) -> None:
    """Raises a `ValueError` unless labels are of `shape`, each -100 or less than `classes`. With `classes=None` they
    may have any value, and more dimensions.

    `table`, `name` and `inputs` name the classes, the labels and what has that `shape` in the message.
    """
    if labels is None:
        return
    is_one_each = classes is None or labels.numel() == math.prod(shape)
    if labels.shape[: len(shape)] != shape or not is_one_each:
        raise ValueError(f"{name} of shape {tuple(labels.shape)} should be of shape {tuple(shape)}, as {inputs}.")
    if classes is not None:
        check_values(name, labels, classes, table, ignored=IGNORED)
