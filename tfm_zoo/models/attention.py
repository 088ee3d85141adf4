"""Multi-head attention of the block, through transformers' attention interface (eager, sdpa, flex, flash)."""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from transformers import Cache, EncoderDecoderCache

from .attention_dropout import dropped_attention_forward
from .compat import ALL_ATTENTION_FUNCTIONS
from .linear_attention import linear_attention_forward
from .positions import rotate
from .unpadding import Padding
from .window import Window, attend_within


class TfmAttention(nn.Module):
    """Multi-head (Vaswani et al. 2017) or grouped-query (Ainslie et al. 2023) self-attention.

    Args:
        config: a configuration of the zoo.
        layer_idx: the layer's number, by which it finds its part of a cache.
        is_causal: whether a position sees only those before it, and itself.
    """

    def __init__(self, config, layer_idx: int, is_causal: bool = False):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.is_causal = is_causal
        self.head_dim = config.head_dim
        self.num_key_value_groups = config.num_attention_heads // config.num_key_value_heads
        self.scaling = self.head_dim**-0.5
        self.attention_dropout = config.attention_dropout
        query_width, key_width = (n * self.head_dim for n in (config.num_attention_heads, config.num_key_value_heads))
        self.q_proj = nn.Linear(config.hidden_size, query_width, bias=config.attention_bias)
        self.k_proj = nn.Linear(config.hidden_size, key_width, bias=config.attention_bias)
        self.v_proj = nn.Linear(config.hidden_size, key_width, bias=config.attention_bias)
        self.o_proj = nn.Linear(query_width, config.hidden_size, bias=config.attention_output_bias)
        self.layer_type = config.kind_of(layer_idx)
        self.sliding_window = None
        if self.layer_type == "sliding_attention":
            # Read by flash attention alone, which counts the position itself; the others read the mask.
            self.sliding_window = config.sliding_window if is_causal else config.sliding_window + 1

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | Window | None = None,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | None = None,
        padding: Padding | None = None,
        past_key_values: Cache | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """
        Args:
            hidden_states: `(batch, length, hidden_size)`; `(1, real tokens, hidden_size)` where `padding` is given.
            attention_mask: what transformers' mask functions make for the attention implementation, for the padded
                shape; `None`: every position attends to every other. Of linear attention, 0 at padding.
            position_embeddings: cosines and sines of rotary positions, each `(batch, length, rotated channels)`.
            padding: where the real tokens of a batch without its padding belong.
            past_key_values: keys and values of the positions before, which those of these are added to; of linear
                attention, their state.

        Returns:
            The output, in the shape of `hidden_states`, and the attention weights `(batch, heads, length, length)`
            if the implementation gives them.
        """
        query, key, value = (self.split_heads(proj(hidden_states)) for proj in (self.q_proj, self.k_proj, self.v_proj))
        if position_embeddings is not None:
            query, key = rotate(query, *position_embeddings), rotate(key, *position_embeddings)
        if past_key_values is not None and self.layer_type == "linear_attention":
            kwargs["state"] = past_key_values.layers[self.layer_idx]
        elif past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        if self.sliding_window is not None:
            kwargs["sliding_window"] = self.sliding_window
        return self.attend(query, key, value, attention_mask, padding, **kwargs)

    def split_heads(self, states: torch.Tensor) -> torch.Tensor:
        """`(batch, length, heads * head_dim)` to `(batch, heads, length, head_dim)`."""
        return states.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | Window | None,
        padding: Padding | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Heads `(batch, heads, length, head_dim)` to the output `(batch, length, hidden_size)`, and weights."""
        dropout = self.attention_dropout if self.training else 0.0
        attention = self.choose_attention(query, dropout)
        if isinstance(attention_mask, Window):
            attention = partial(attend_within, attention)
        if padding is not None:
            attention = padding.around(attention)
        output, weights = attention(
            self, query, key, value, attention_mask, scaling=self.scaling, dropout=dropout, **kwargs
        )  # (batch, length, heads, head_dim)
        return self.o_proj(output.flatten(2)), weights

    def choose_attention(self, query: torch.Tensor, dropout: float) -> Callable:
        """A function of the attention interface: linear attention, the implementation asked for, or one that computes
        the same."""
        if self.layer_type == "linear_attention":
            return linear_attention_forward
        implementation = self.config._attn_implementation
        if implementation == "sdpa" and dropout and query.device.type == "cpu" and not torch.compiler.is_compiling():
            return dropped_attention_forward
        return ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention_forward)


class TfmCrossAttention(TfmAttention):
    """Attention of the decoder to the encoder's last hidden state, which is no part of any order: there are neither
    positions nor windows."""

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx)
        self.layer_type, self.sliding_window = "full_attention", None

    def forward(
        self,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor | None,
        attention_mask: torch.Tensor | Padding | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """
        Args:
            hidden_states: `(rows, length, hidden_size)`, the decoder's; one after the other, as many rows read the same
                source as there are rows to a source.
            encoder_hidden_states: `(sources, source length, hidden_size)`; not read where `past_key_values` has the
                keys and values made of it.
            attention_mask: what transformers' mask functions make of the sources' padding, for all positions of all
                rows that read a source; or that padding, for an implementation that is told lengths.
            past_key_values: keeps the keys and values, so that they are computed once for a generation.

        Returns:
            As [`TfmAttention`].
        """
        cache = None if past_key_values is None else past_key_values.cross_attention_cache
        if cache is not None and past_key_values.is_updated.get(self.layer_idx):
            key, value = cache.layers[self.layer_idx].keys, cache.layers[self.layer_idx].values
        else:
            key, value = (self.split_heads(proj(encoder_hidden_states)) for proj in (self.k_proj, self.v_proj))
            if cache is not None:
                key, value = cache.update(key, value, self.layer_idx)
                past_key_values.is_updated[self.layer_idx] = True

        # To its source, a sentence's beams are so many more positions.
        rows, length, width = hidden_states.shape
        query = self.split_heads(self.q_proj(hidden_states.reshape(key.shape[0], -1, width)))
        if isinstance(attention_mask, Padding):
            kwargs["padding"], attention_mask = attention_mask, None
        output, weights = self.attend(query, key, value, attention_mask, **kwargs)
        if weights is not None and rows != key.shape[0]:  # the weights themselves, else: gradients reach them
            weights = weights.unflatten(2, (-1, length)).transpose(1, 2).flatten(0, 1)
        return output.reshape(rows, length, width), weights


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scaled dot-product attention written out (Vaswani et al. 2017, equation 1), which can return its weights."""
    if module.num_key_value_groups > 1:
        key = key.repeat_interleave(module.num_key_value_groups, dim=1)
        value = value.repeat_interleave(module.num_key_value_groups, dim=1)
    scores = query @ key.transpose(2, 3) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = scores.softmax(dim=-1, dtype=torch.float).to(query.dtype)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    return (weights @ value).transpose(1, 2).contiguous(), weights
