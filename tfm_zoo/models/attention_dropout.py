"""Attention with dropout on a CPU, whose fused kernels have none: torch then writes out every weight three times.

Here the weights are kept once, and beside them one byte for each that says whether it was dropped.
"""

import torch
from torch.autograd.function import once_differentiable


def dropped_attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """A function of transformers' attention interface, for masks in the form of `"eager"` or of `"sdpa"`."""
    if module.num_key_value_groups > 1:
        key = key.repeat_interleave(module.num_key_value_groups, dim=1)
        value = value.repeat_interleave(module.num_key_value_groups, dim=1)
    if attention_mask is None and module.is_causal and query.shape[2] > 1:
        # There is none for the first pass, which a static cache has keys beyond; a single query sees all.
        attention_mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool).tril()
    scores = (query * scaling) @ key.transpose(2, 3)
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    elif attention_mask is not None:
        scores = scores + attention_mask
    return DroppedAttention.apply(scores, value, dropout).transpose(1, 2).contiguous(), None


class DroppedAttention(torch.autograd.Function):
    """`dropout(softmax(scores)) @ value`, of shapes `(..., queries, keys)` and `(..., keys, head_dim)`."""

    @staticmethod
    def forward(ctx, scores: torch.Tensor, value: torch.Tensor, dropout: float) -> torch.Tensor:
        weights = scores.softmax(dim=-1, dtype=torch.float).to(value.dtype)
        # The draw of torch's own dropout, so that the same seed drops the same.
        stays = torch.empty_like(weights, dtype=torch.bool).bernoulli_(1 - dropout)
        ctx.save_for_backward(weights, stays, value)
        ctx.scale = 1 / (1 - dropout)
        return (weights * stays).mul_(ctx.scale) @ value

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        weights, stays, value = ctx.saved_tensors
        value_gradient = (weights * stays).mul_(ctx.scale).transpose(-2, -1) @ gradient
        weights_gradient = (gradient @ value.transpose(-2, -1)).mul_(stays).mul_(ctx.scale)
        scores_gradient = torch._softmax_backward_data(weights_gradient, weights, -1, weights.dtype)
        return scores_gradient, value_gradient, None
