"""The two norms of the block."""

import torch
from torch import nn


class TfmRMSNorm(nn.Module):
    """Root mean square norm (Zhang and Sennrich 2019): no mean is subtracted, no bias is added.

    Args:
        hidden_size: width of the last dimension.
        eps: added to the mean square.
    """

    def __init__(self, hidden_size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.eps = eps

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        # The statistic is taken in float32, and the weight applied in the input's precision, as LLaMA does.
        wide = hidden_states.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(hidden_states.dtype)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, eps={self.eps}"


NORMS = {"layernorm": nn.LayerNorm, "rmsnorm": TfmRMSNorm}


def make_norm(config) -> nn.Module:
    """A norm over `config.hidden_size` channels, of `config.norm_type`."""
    return NORMS[config.norm_type](config.hidden_size, eps=config.norm_eps)
