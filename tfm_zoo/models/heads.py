"""What heads share: checks of labels, outputs, and the layers of poolers and of classifiers of sequences."""

import math
from collections import OrderedDict

import torch
from torch import nn
from transformers.utils import ModelOutput

from .compat import ACT2FN
from .inputs import check_values
from .losses import IGNORED
from .norms import make_norm

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


def make_pooler(config, activation: str, dropout: float, bias: bool = True, has_norm: bool = False) -> nn.Sequential:
    """The layers that read a pooled state, `(..., hidden_size)` in and out."""
    dense = nn.Linear(config.hidden_size, config.hidden_size, bias=bias)
    layers = OrderedDict(dropout=nn.Dropout(dropout), dense=dense, act_fn=ACT2FN[activation])
    return nn.Sequential(layers | {"norm": make_norm(config)} if has_norm else layers)


def make_classifier(config, pooler: nn.Sequential, dropout: float) -> nn.Sequential:
    """A pooler (or its dropout alone) and a projection, `(..., width)` to `(rows, num_labels)`; an engine gives it
    `(rows, 1, width)`."""
    read = dict((pooler if config.classifier_dense else pooler[:1]).named_children())
    layers = {"flatten": nn.Flatten(0, -2), **read, "out_dropout": nn.Dropout(dropout)}
    return nn.Sequential(OrderedDict(layers, out_proj=nn.Linear(config.hidden_size, config.num_labels)))
