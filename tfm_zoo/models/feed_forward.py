"""The position-wise feed-forward of the block."""

import torch
from torch import nn

from .compat import ACT2FN

#: activations that transformers writes out, and the one and the same function in a single kernel
FUSED = {"gelu_new": "gelu_pytorch_tanh", "gelu_fast": "gelu_pytorch_tanh"}


class TfmMLP(nn.Module):
    """`down(act(up(x)))`, or gated (Shazeer 2020): `down(act(gate(x)) * up(x))`.

    Shapes: `(..., hidden_size)` in and out, `(..., intermediate_size)` inside.
    """

    def __init__(self, config):
        super().__init__()
        width, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.gate_proj = nn.Linear(width, inner, bias=bias) if config.mlp_type == "gated" else None
        self.up_proj = nn.Linear(width, inner, bias=bias)
        self.down_proj = nn.Linear(inner, width, bias=bias)
        self.act_fn = ACT2FN[FUSED.get(config.hidden_act, config.hidden_act)]
        self.dropout = nn.Dropout(config.activation_dropout)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        inner = self.up_proj(hidden_states)
        inner = self.act_fn(inner) if self.gate_proj is None else self.act_fn(self.gate_proj(hidden_states)) * inner
        return self.down_proj(self.dropout(inner))
