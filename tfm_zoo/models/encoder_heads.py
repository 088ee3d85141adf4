"""Parts of the heads that only encoders have: poolers, pooling, and the loss and the logits of masked tokens."""

from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import nn

from .compat import ACT2FN
from .engines import check_pooling
from .inputs import check_tensor, marks_padding
from .losses import labelled, labelled_only, logits_loss, makes_logits, vocabulary_loss
from .norms import make_norm
from .padding import find_kept, has_hooks, keep, reads_padding, restore, unless_whole

#: fields of the configuration that a pooler and its pooling read
POOLING = ("classifier_pooling", "pooler_act", "pooler_dropout", "classifier_norm")
#: those that say whether there is a [`TfmPredictionHead`], and what it is
PREDICTION = ("lm_head_transform", "lm_head_act", "classifier_bias")


class TfmPredictionHead(nn.Module):
    """The layers between a model and its projection onto the vocabulary (or labels): dense, activation, norm."""

    def __init__(self, config, width: int):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, width, bias=config.classifier_bias)
        self.act_fn = ACT2FN[config.lm_head_act]
        self.norm = make_norm(config, width)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """`(..., hidden_size)` to `(..., width)`."""
        return self.norm(self.act_fn(self.dense(hidden_states)))


def masked_tokens(
    model, states: torch.Tensor, attention_mask: object, labels, return_logits: bool | None, num_items_in_batch=None
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """The loss and the logits of `model.lm_head`, after `model.head`, each `None` if not asked for; `states` are
    `(batch, length, hidden_size)`, and the options those of [`TfmBertForMaskedLM`]."""
    if not makes_logits(model, labels, return_logits):
        if labels is None:
            return None, None
        states, targets = labelled_only(states, labels)
        return vocabulary_loss(model.head(states), model.lm_head, targets, num_items_in_batch), None
    kept = None
    if marks_padding(attention_mask) and model.config.skip_padding and not has_hooks(model.head, model.lm_head):
        others = reads_padding(attention_mask, labelled(labels))
        kept = unless_whole(find_kept(attention_mask, others))  # those that the encoder keeps
    logits = model.lm_head(model.head(states if kept is None else keep(states, kept)))
    logits = logits if kept is None else restore(logits, kept)
    # (Few positions have a label: to copy theirs costs less than all in float32.)
    return None if labels is None else logits_loss(*labelled_only(logits, labels), num_items_in_batch), logits


def make_pooler(config) -> nn.Sequential:
    """The layers that read a pooled state, `(..., hidden_size)` in and out."""
    dense = nn.Linear(config.hidden_size, config.hidden_size, bias=config.classifier_bias)
    layers = OrderedDict(dropout=nn.Dropout(config.pooler_dropout), dense=dense, act_fn=ACT2FN[config.pooler_act])
    return nn.Sequential(layers | {"norm": make_norm(config)} if config.classifier_norm else layers)


def make_classifier(config, pooler: nn.Sequential) -> nn.Sequential:
    """A pooler (or its dropout alone) and a projection, `(..., width)` to `(rows, num_labels)`; an engine gives it
    `(rows, 1, width)`."""
    check_pooling(config)
    read = dict((pooler if config.classifier_dense else pooler[:1]).named_children())
    layers = {"flatten": nn.Flatten(0, -2), **read, "out_dropout": nn.Dropout(config.classifier_dropout)}
    return nn.Sequential(OrderedDict(layers, out_proj=nn.Linear(config.hidden_size, config.num_labels)))


def pool(config, states: torch.Tensor, mask: torch.Tensor | None, layers: Callable, query=None) -> torch.Tensor:
    """Applies `layers`, a pooler or a classifier, `(batch, length, width)` to `(batch, outputs)`: they read the first
    position, or a mean over real tokens ([`mean_of`]); "late" averages their outputs for real tokens."""
    if config.classifier_pooling == "cls":
        return layers(states[:, 0])
    if config.classifier_pooling == "late":
        outputs = layers(states)
        return mean_of(outputs.view(*states.shape[:2], outputs.shape[-1]), mask)
    return layers(mean_of(states, mask, query))


def mean_of(states: torch.Tensor, mask: torch.Tensor | None, query: nn.Module | None = None) -> torch.Tensor:
    """`(batch, length, width)` to `(batch, width)`: the mean of the real tokens; if there is a `query`, weighted by the
    softmax of the scores `(batch, length, 1)` that it gives them."""
    if query is not None:
        scores = query(states).float()
        if mask is not None:
            scores = scores.masked_fill(mask.to(scores.device).unsqueeze(-1) == 0, torch.finfo(scores.dtype).min)
        return (states * scores.softmax(dim=1).to(states)).sum(dim=1)
    if mask is None:
        return states.mean(dim=1)
    real = mask.to(states).unsqueeze(-1)
    return (states * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)


def pools_first(config, attention_mask: torch.Tensor | None) -> bool:
    """Whether the first position is pooled; raises a `ValueError` if a mean needs another mask."""
    check_tensor("attention_mask", attention_mask)
    pooling = config.classifier_pooling
    if pooling != "cls" and attention_mask is not None and not marks_padding(attention_mask):
        raise ValueError(
            f"attention_mask of shape {tuple(attention_mask.shape)} does not say which tokens are real, which "
            f"classifier_pooling={pooling!r} needs to know: it should be of shape (batch, length)."
        )
    return pooling == "cls"
