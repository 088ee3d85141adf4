"""One vector for each sequence: the hidden states that it is made of, and the layers that read it."""

import torch
from torch import nn

from .compat import ACT2FN
from .layout import marks_padding


class TfmPooler(nn.Module):
    """The layer that reads the pooled hidden state of a sequence."""

    def __init__(self, width: int, activation: str, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Linear(width, width)
        self.act_fn = ACT2FN[activation]

    def forward(self, pooled: torch.Tensor) -> torch.Tensor:
        """`(..., width)` in and out."""
        return self.act_fn(self.dense(self.dropout(pooled)))


class TfmClassificationHead(nn.Module):
    """The layers of a pooler and a projection onto the labels: one module, since serving engines run it by itself."""

    def __init__(self, pooler: TfmPooler, num_labels: int, dropout: float):
        super().__init__()
        self.pooler_dropout, self.dense, self.act_fn = pooler.dropout, pooler.dense, pooler.act_fn
        self.dropout = nn.Dropout(dropout)
        self.out_proj = nn.Linear(self.dense.out_features, num_labels)

    def forward(self, pooled: torch.Tensor) -> torch.Tensor:
        """`(..., width)` to `(..., num_labels)`."""
        return self.out_proj(self.dropout(self.act_fn(self.dense(self.pooler_dropout(pooled)))))


def pool(config, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
    """`(batch, length, width)` to `(batch, width)`: the first position, or the mean of the real tokens."""
    if config.classifier_pooling == "cls":
        return hidden_states[:, 0]
    if attention_mask is None:
        return hidden_states.mean(dim=1)
    real = attention_mask.to(hidden_states).unsqueeze(-1)
    return (hidden_states * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)


def reads_first(config, attention_mask: torch.Tensor | None) -> bool:
    """Whether the first position is pooled; raises a `ValueError` for a mask that does not tell the mean's tokens."""
    if config.classifier_pooling == "mean" and attention_mask is not None and not marks_padding(attention_mask):
        raise ValueError(
            f"attention_mask of shape {tuple(attention_mask.shape)} does not say which tokens are real, which "
            "classifier_pooling='mean' needs to know: it should be of shape (batch, length)."
        )
    return config.classifier_pooling == "cls"


def first_positions(attention_mask: torch.Tensor | None) -> torch.BoolTensor | None:
    """`(batch, length)`, true at the first position; `None` without a mask of padding."""
    if not marks_padding(attention_mask):
        return None
    return torch.arange(attention_mask.shape[1], device=attention_mask.device).expand_as(attention_mask) == 0
