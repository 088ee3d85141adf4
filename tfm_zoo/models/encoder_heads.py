"""Parts of the heads that only encoders have, and the loss and the logits of masked tokens."""

import torch
from torch import nn

from .compat import ACT2FN
from .entrance import find_kept, has_hooks, keep, restore
from .losses import labelled_only, logits_loss, vocabulary_loss
from .norms import make_norm


class TfmPredictionHead(nn.Module):
    """The layers between an encoder and its projection onto the vocabulary (or labels): dense, activation, norm."""

    def __init__(self, config, width: int):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, width, bias=config.classifier_bias)
        self.act_fn = ACT2FN[config.lm_head_act]
        self.norm = make_norm(config, width)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """`(..., hidden_size)` to `(..., width)`."""
        return self.norm(self.act_fn(self.dense(hidden_states)))


def make_transform(config, exists: bool, width: int) -> nn.Module:
    """A [`TfmPredictionHead`], or nothing."""
    return TfmPredictionHead(config, width) if exists else nn.Identity()


def masked_tokens(
    model: nn.Module,
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor | None,
    labels: torch.LongTensor | None,
    return_logits: bool | None,
    num_items_in_batch: int | torch.Tensor | None = None,
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """The loss and the logits of `model.lm_head`, after `model.head`, each `None` if not asked for; `hidden_states` are
    `(batch, length, hidden_size)`, and the options those of [`TfmBertForMaskedLM`]."""
    is_hooked = has_hooks(model.head, model.lm_head)  # hooks see every position
    makes_logits = labels is None or is_hooked or (not model.training if return_logits is None else return_logits)
    loss = logits = None
    if makes_logits:
        kept = find_kept(attention_mask) if model.config.skip_padding and not is_hooked else None
        states = hidden_states if kept is None else keep(hidden_states, kept)
        logits = model.lm_head(model.head(states))
        logits = logits if kept is None else restore(logits, kept)
    if labels is not None and is_hooked:
        loss = logits_loss(logits, labels, num_items_in_batch)
    elif labels is not None:
        states, targets = labelled_only(hidden_states, labels)
        loss = vocabulary_loss(model.head(states), model.lm_head, targets, num_items_in_batch, not makes_logits)
    return loss, logits
