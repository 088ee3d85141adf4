"""One Transformer block: attention and feed-forward, each with its norm and residual sum."""

from collections.abc import Callable

import torch
from torch import nn
from transformers import GradientCheckpointingLayer

from .attention import TfmAttention
from .feed_forward import TfmMLP
from .norms import make_norm


class TfmLayer(GradientCheckpointingLayer):
    """One block. Post-norm (Vaswani et al. 2017): `norm(x + f(x))`; pre-norm (Xiong et al. 2020): `x + f(norm(x))`."""

    def __init__(self, config, layer_idx: int, is_causal: bool = False):
        super().__init__()
        self.pre_norm = config.norm_position == "pre"
        self.self_attn = TfmAttention(config, layer_idx, is_causal)
        self.self_attn_norm = make_norm(config)
        self.mlp = TfmMLP(config)
        self.mlp_norm = make_norm(config)
        after_attention = config.attention_output_dropout
        self.self_attn_dropout = nn.Dropout(config.hidden_dropout if after_attention is None else after_attention)
        self.mlp_dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, hidden_states: torch.Tensor, **kwargs) -> torch.Tensor:
        """Hidden states of shape `(batch, length, hidden_size)` in and out; `kwargs` are attention's."""

        def attend(normed: torch.Tensor) -> torch.Tensor:
            return self.self_attn(normed, **kwargs)[0]

        hidden_states = self.residual(hidden_states, attend, self.self_attn_norm, self.self_attn_dropout)
        return self.residual(hidden_states, self.mlp, self.mlp_norm, self.mlp_dropout)

    def residual(self, hidden_states: torch.Tensor, sublayer: Callable, norm: nn.Module, dropout: nn.Module):
        if self.pre_norm:
            return hidden_states + dropout(sublayer(norm(hidden_states)))
        return norm(hidden_states + dropout(sublayer(hidden_states)))
