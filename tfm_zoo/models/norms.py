"""The norms of the block, of queries and keys, and of embeddings."""

from functools import partial

import torch
from torch import nn
from torch.nn import functional as F


class TfmRMSNorm(nn.Module):
    """Root mean square norm (Zhang and Sennrich 2019) over the last dimension."""

    def __init__(self, hidden_size: int, eps: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.eps = eps

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        weight = self.weight
        if hidden_states.dtype == weight.dtype == torch.float32:
            return torch.rms_norm(hidden_states, weight.shape, weight, self.eps)
        # As in LLaMA, the mean is computed in float32, and the weight applied in the input's precision.
        wide = hidden_states.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return weight * wide.to(hidden_states.dtype)


class TfmZeroCenteredRMSNorm(TfmRMSNorm):
    """The same with `1 + weight` in place of the weight (Gemma), in float32; models start it at zero."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        # Serving engines recognise this norm by its operations: they would read `torch.rms_norm` without the `1 +`.
        wide = hidden_states.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * (1.0 + self.weight.float())).to(hidden_states.dtype)


class TfmZeroCenteredLayerNorm(nn.LayerNorm):
    """LayerNorm with `1 + weight` in place of the weight (Nemotron); models start it at zero."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(hidden_states, self.normalized_shape, self.weight + 1.0, self.bias, self.eps)


NORMS = {
    "layernorm": nn.LayerNorm,
    "zero_centered_layernorm": TfmZeroCenteredLayerNorm,
    "plain_layernorm": partial(nn.LayerNorm, elementwise_affine=False),
    "rmsnorm": TfmRMSNorm,
    "plain_rmsnorm": partial(nn.RMSNorm, elementwise_affine=False),
    "zero_centered_rmsnorm": TfmZeroCenteredRMSNorm,
}


def make_norm(config, width: int | None = None) -> nn.Module:
    options = {"bias": config.norm_bias} if "layernorm" in config.norm_type else {}
    return NORMS[config.norm_type](width or config.hidden_size, eps=config.norm_eps, **options)


class TfmMultiplier(nn.Module):
    """Multiplies its input by a number. It stands for a norm (Granite)."""

    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return hidden_states * self.factor


def multiplier(factor: float) -> nn.Module | None:
    return None if factor == 1 else TfmMultiplier(factor)


def make_head_norm(config, heads: int) -> nn.Module | None:
    """The norm of this many heads of queries or keys, if the model has one."""
    widths = {"whole": heads * config.head_dim}
    return make_norm(config, widths.get(config.qk_norm, config.head_dim)) if config.qk_norm else None


def norm_heads(attention, norm: nn.Module, heads: torch.Tensor) -> torch.Tensor:
    """Norms `(batch, heads, length, head_dim)`: each head, or all heads of a position as one."""
    states = heads.transpose(1, 2)  # as they were projected: nothing is copied
    whole = states.flatten(2) if attention.config.qk_norm == "whole" else states
    return norm(whole).view(states.shape).transpose(1, 2)
