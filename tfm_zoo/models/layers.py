"""One Transformer block: attention and feed-forward, each with its norm and residual sum."""

from collections.abc import Callable

import torch
from torch import nn
from transformers import EncoderDecoderCache, GradientCheckpointingLayer

from .attention import TfmAttention, TfmCrossAttention
from .feed_forward import TfmMLP
from .norms import make_norm


class TfmLayer(GradientCheckpointingLayer):
    """One block. Post-norm (Vaswani et al. 2017): `norm(x + f(x))`; pre-norm (Xiong et al. 2020): `x + f(norm(x))`.

    Args:
        config: a configuration of the zoo.
        layer_idx: the layer's number.
        is_causal: whether a position sees only those before it, and itself.
        has_cross_attention: whether the block reads an encoder too, between attention to itself and the feed-forward.
    """

    def __init__(self, config, layer_idx: int, is_causal: bool = False, has_cross_attention: bool = False):
        super().__init__()
        self.pre_norm = config.norm_position == "pre"
        after_attention = config.attention_output_dropout
        after_attention = config.hidden_dropout if after_attention is None else after_attention
        self.self_attn = TfmAttention(config, layer_idx, is_causal)
        self.self_attn_norm = make_norm(config)
        self.encoder_attn = TfmCrossAttention(config, layer_idx) if has_cross_attention else None
        self.encoder_attn_norm = make_norm(config) if has_cross_attention else None
        self.mlp = TfmMLP(config)
        self.mlp_norm = make_norm(config)
        self.self_attn_dropout = nn.Dropout(after_attention)
        self.encoder_attn_dropout = nn.Dropout(after_attention) if has_cross_attention else None
        self.mlp_dropout = nn.Dropout(config.hidden_dropout)

    def forward(
        self,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        encoder_cache: EncoderDecoderCache | None = None,
        **kwargs,
    ) -> torch.Tensor:
        """Hidden states of shape `(batch, length, hidden_size)` in and out.

        Args:
            encoder_hidden_states: what [`TfmCrossAttention`] reads, with its mask and its cache.
            kwargs: those of [`TfmAttention`].
        """

        def attend(normed: torch.Tensor) -> torch.Tensor:
            return self.self_attn(normed, **kwargs)[0]

        def attend_encoder(normed: torch.Tensor) -> torch.Tensor:
            return self.encoder_attn(normed, encoder_hidden_states, encoder_attention_mask, encoder_cache)[0]

        hidden_states = self.residual(hidden_states, attend, self.self_attn_norm, self.self_attn_dropout)
        if self.encoder_attn is not None:
            hidden_states = self.residual(
                hidden_states, attend_encoder, self.encoder_attn_norm, self.encoder_attn_dropout
            )
        return self.residual(hidden_states, self.mlp, self.mlp_norm, self.mlp_dropout)

    def residual(self, hidden_states: torch.Tensor, sublayer: Callable, norm: nn.Module, dropout: nn.Module):
        if self.pre_norm:
            return hidden_states + dropout(sublayer(norm(hidden_states)))
        return norm(hidden_states + dropout(sublayer(hidden_states)))
