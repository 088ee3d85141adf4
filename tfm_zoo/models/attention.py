"""Multi-head attention of the block, through transformers' attention interface (eager, sdpa, flex, flash).

vLLM searches this source for `ALL_ATTENTION_FUNCTIONS.get_interface(`, and for one call of the function that it
returns: both have to stay in this form.
"""

import torch
from torch import nn
from transformers import Cache

from .compat import ALL_ATTENTION_FUNCTIONS
from .kernels import eager_attention_forward
from .layout import EVERYTHING, Layout
from .norms import make_head_norm, norm_heads
from .positions import rotate_together


class TfmAttention(nn.Module):
    """Multi-head (Vaswani et al. 2017) or grouped-query (Ainslie et al. 2023) self-attention.

    Args:
        config: a configuration of the zoo.
        layer_idx: the layer's number, by which it finds its part of a cache.
        layer_type: `"full_attention"`, `"sliding_attention"` or `"linear_attention"`. `None`: `config.layer_type`.
        is_causal: whether a position sees only itself and those before it.
        sizes: the configuration that says how many heads there are. `None`: `config`.
    """

    def __init__(self, config, layer_idx: int, layer_type: str | None = None, is_causal: bool = False, sizes=None):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.layer_type = config.layer_type if layer_type is None else layer_type
        self.is_rotary = bool(config.no_rope_layers[layer_idx])
        self.is_causal = is_causal
        sizes = config if sizes is None else sizes
        heads, key_heads = sizes.num_attention_heads, sizes.num_key_value_heads
        self.head_dim = sizes.head_dim
        self.num_key_value_groups = heads // key_heads
        self.scaling = sizes.attention_scale
        self.softcap = config.attn_logit_softcapping
        self.attention_dropout = config.attention_dropout
        query_width, key_width = heads * self.head_dim, key_heads * self.head_dim
        self.q_proj = nn.Linear(config.hidden_size, query_width, bias=config.attention_bias)
        self.k_proj = nn.Linear(config.hidden_size, key_width, bias=config.attention_bias)
        self.v_proj = nn.Linear(config.hidden_size, key_width, bias=config.attention_bias)
        self.o_proj = nn.Linear(query_width, config.hidden_size, bias=config.attention_output_bias)
        self.q_norm = make_head_norm(sizes, heads)
        self.k_norm = make_head_norm(sizes, key_heads)
        self.sliding_window = None
        if self.layer_type == "sliding_attention":
            # Only flash attention reads this width, the position itself included; other kernels read the layout.
            self.sliding_window = config.sliding_window if is_causal else config.sliding_window + 1

    def forward(
        self,
        hidden_states: torch.Tensor,
        layout: Layout = EVERYTHING,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | None = None,
        past_key_values: Cache | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """`(batch, length, hidden_size)` in and out, and attention weights `(batch, heads, length, length)` or `None`.

        `position_embeddings`: cosines and sines of rotary positions, each `(batch, length, rotated channels)`.
        `past_key_values`: keys and values (linear attention: a state) of earlier positions, to which it adds these.
        """
        shape = (*hidden_states.shape[:-1], -1, self.head_dim)
        query = self.q_proj(hidden_states).view(shape).transpose(1, 2)  # (batch, heads, length, head_dim)
        key = self.k_proj(hidden_states).view(shape).transpose(1, 2)
        value = self.v_proj(hidden_states).view(shape).transpose(1, 2)
        if self.q_norm is not None:
            query, key = norm_heads(self.q_norm, query), norm_heads(self.k_norm, key)
        if position_embeddings is not None and self.is_rotary:
            query, key = rotate_together(query, key, *position_embeddings)
        if past_key_values is not None and self.layer_type == "linear_attention":
            kwargs["state"] = past_key_values.layers[self.layer_idx]
        elif past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)

        implementation = self.config._attn_implementation
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention_forward)
        attend = layout.around(attend, implementation, self, query)
        dropout = self.attention_dropout if self.training else 0.0
        kwargs |= {"dropout": dropout, "sliding_window": self.sliding_window, "softcap": self.softcap}
        output, weights = attend(self, query, key, value, layout.mask, scaling=self.scaling, **kwargs)
        return self.o_proj(output.reshape(*hidden_states.shape[:-1], -1)), weights
