"""The block of a decoder that reads an encoder: between self-attention and feed-forward it attends to the source."""

from typing import NamedTuple

import torch
from transformers import EncoderDecoderCache

from .attention import TfmAttention
from .compat import ALL_ATTENTION_FUNCTIONS
from .kernels import eager_attention_forward
from .layers import TfmLayer
from .layout import EVERYTHING, Layout, Padding
from .norms import norm_heads


class Source(NamedTuple):
    """What the decoder reads of the source.

    Args:
        states: `(sources, source length, hidden_size)`, the encoder's last hidden state, or `(1, real tokens,
            hidden_size)` where its `padding` was dropped.
        padding: of the states; it is restored in their keys and values.
        layout: which of its positions are seen.
        cache: keeps keys and values of both sides; the source's are computed once in a generation.
        target_padding: the padding that was dropped from the target.
    """

    states: torch.Tensor | None = None
    padding: Padding | None = None
    layout: Layout = EVERYTHING
    cache: EncoderDecoderCache | None = None
    target_padding: Padding | None = None


class TfmCrossLayer(TfmLayer):
    """A [`TfmLayer`] with attention to the source, in slots of its own."""

    def add_attention(self, config, layer_idx: int, sizes, **options) -> None:
        super().add_attention(config, layer_idx, sizes=sizes, **options)
        self.add_sub_layer("encoder_attn", TfmCrossAttention(config, layer_idx, sizes), config)

    def forward(self, hidden_states: torch.Tensor, *source: object, **kwargs) -> torch.Tensor:
        """Hidden states `(batch, length, hidden_size)` in and out; `source` are the fields of a [`Source`]."""
        hidden_states, norm = self.attend(hidden_states, **kwargs), self.encoder_attn_norm
        attended = self.encoder_attn(hidden_states if self.is_post_norm else norm(hidden_states), *source)[0]
        slots = (norm, self.encoder_attn_output_norm, self.encoder_attn_dropout)
        return self.feed(self.add(hidden_states, attended, *slots))


class TfmCrossAttention(TfmAttention):
    """Attention of the decoder to the encoder's last hidden state, without positions and windows."""

    def __init__(self, config, layer_idx: int, sizes):
        super().__init__(config, layer_idx, layer_type="full_attention", sizes=sizes)

    def forward(
        self,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor | None,
        source_padding: Padding | None = None,
        layout: Layout = EVERYTHING,
        past_key_values: EncoderDecoderCache | None = None,
        target_padding: Padding | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Returns what [`TfmAttention`] returns.

        Args:
            hidden_states: `(rows, length, hidden_size)`, the decoder's. Consecutive rows may read the same source, as
                the beams of a sentence do.
            encoder_hidden_states: `(sources, source length, hidden_size)`, without the `source_padding` if that was
                dropped; not read once `past_key_values` holds its keys and values.
            layout: which positions of its source a row sees.
            past_key_values: keeps keys and values, so that a generation computes them once.
            target_padding: the padding dropped from the target; it is restored for the attention call only.
        """
        cache = None if past_key_values is None else past_key_values.cross_attention_cache
        if cache is not None and past_key_values.is_updated.get(self.layer_idx):
            key, value = cache.layers[self.layer_idx].keys, cache.layers[self.layer_idx].values
        else:
            key, value = self.k_proj(encoder_hidden_states), self.v_proj(encoder_hidden_states)
            if source_padding is not None:
                key, value = source_padding.restore(key), source_padding.restore(value)
            shape = (*key.shape[:-1], -1, self.head_dim)
            key, value = key.view(shape).transpose(1, 2), value.view(shape).transpose(1, 2)
            if self.k_norm is not None:
                key = norm_heads(self.k_norm, key)
            if cache is not None:
                key, value = cache.update(key, value, self.layer_idx)
                past_key_values.is_updated[self.layer_idx] = True

        query = self.q_proj(hidden_states)  # tensor parallelism leaves some of the heads to other processes
        query = query if target_padding is None else target_padding.restore(query)
        rows, length, _ = query.shape
        sources = key.shape[0]  # the rows that read one source are laid end to end, as if they were one row
        query = query.view(sources, -1, query.shape[-1] // self.head_dim, self.head_dim)
        implementation = self.config._attn_implementation
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention_forward)
        attend, query = layout.around(attend, implementation, self, query), query.transpose(1, 2)
        if self.q_norm is not None:
            query = norm_heads(self.q_norm, query)
        kwargs |= {"dropout": self.attention_dropout if self.training else 0.0, "softcap": self.softcap}
        output, weights = attend(self, query, key, value, layout.mask, scaling=self.scaling, **kwargs)
        if weights is not None and rows != sources:
            weights = weights.unflatten(2, (-1, length)).transpose(1, 2).flatten(0, 1)
        output = output.reshape(rows, length, -1)
        return self.o_proj(output if target_padding is None else target_padding.drop(output)), weights
