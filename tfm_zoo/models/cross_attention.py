"""The block of a decoder that reads an encoder: between self-attention and feed-forward it attends to the source."""

import torch
from transformers import EncoderDecoderCache

from .batch import EVERYTHING, KeptTokens, Layout
from .compat import ALL_ATTENTION_FUNCTIONS
from .entrance import restore
from .kernels import choose_kernel, eager_attention_forward
from .layers import TfmAttention, TfmLayer
from .norms import norm_heads


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
        kept: KeptTokens | None = None,
        layout: Layout = EVERYTHING,
        past_key_values: EncoderDecoderCache | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Returns what [`TfmAttention`] returns.

        Args:
            hidden_states: `(rows, length, hidden_size)`, the decoder's. Consecutive rows may read the same source, as
                the beams of a sentence do.
            encoder_hidden_states: `(sources, source length, hidden_size)`, or `(1, tokens, hidden_size)`; not read once
                `past_key_values` holds its keys and values.
            kept: the tokens that these are of, if the keys and values of the others are to be restored as zeros.
            layout: which positions of its source a row sees.
            past_key_values: keeps keys and values, so that a generation computes them once.
        """
        cache = None if past_key_values is None else past_key_values.cross_attention_cache
        if cache is not None and past_key_values.is_updated.get(self.layer_idx):
            key, value = cache.layers[self.layer_idx].keys, cache.layers[self.layer_idx].values
        else:
            key, value = self.k_proj(encoder_hidden_states), self.v_proj(encoder_hidden_states)
            if kept is not None:
                key, value = restore(key, kept), restore(value, kept)
            shape = (*key.shape[:-1], -1, self.head_dim)
            key, value = key.view(shape).transpose(1, 2), value.view(shape).transpose(1, 2)
            if self.k_norm is not None:
                key = norm_heads(self.k_norm, key)
            if cache is not None:
                key, value = cache.update(key, value, self.layer_idx)
                past_key_values.is_updated[self.layer_idx] = True

        rows, length, _ = hidden_states.shape
        # The rows that read one source are laid end to end, as if they were one row. (Rows that are kept in part, laid
        # end to end themselves, do not share one.)
        sources = key.shape[0] if layout.queries is None else rows
        query = self.q_proj(hidden_states)  # tensor parallelism leaves some of the heads to other processes
        query = query.view(sources, -1, query.shape[-1] // self.head_dim, self.head_dim).transpose(1, 2)
        if self.q_norm is not None:
            query = norm_heads(self.q_norm, query)
        implementation = self.config._attn_implementation
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention_forward)
        attend = choose_kernel(attend, implementation, self, layout, query)
        kwargs |= {"dropout": self.attention_dropout if self.training else 0.0, "softcap": self.softcap}
        output, weights = attend(self, query, key, value, layout.mask, scaling=self.scaling, **kwargs)
        if weights is not None and rows != sources:
            weights = weights.unflatten(2, (-1, length)).transpose(1, 2).flatten(0, 1)
        return self.o_proj(output.reshape(rows, length, -1)), weights
