"""What the zoo puts in the place of transformers' caches: one that does not copy the whole past at every step, one of
linear attention that knows how far it is, and one that holds a source once for all the beams that read it."""

import math

import torch
from transformers import Cache, DynamicCache, EncoderDecoderCache

from .compat import CacheLayerMixin, DynamicLayer, LinearAttentionLayer
from .unpadding import is_traced, marks_padding


class TfmGrowingLayer(DynamicLayer):
    """Keys and values of one layer at the head of tensors that have room for more.

    `keys` and `values` are, as in `DynamicLayer`, of shape `(batch, heads, length, head_dim)`. Whatever replaces them
    (cropping, selecting) loses the room, and the next step makes new: what was handed out is never written over.
    """

    buffers: tuple[torch.Tensor, torch.Tensor] | None = None
    views: tuple[torch.Tensor, torch.Tensor] | None = None  # of the buffers, as they were last handed out

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs):
        """Appends `(batch, heads, new, head_dim)`; returns keys and values of all positions."""
        needs_gradient = torch.is_grad_enabled() and (key_states.requires_grad or value_states.requires_grad)
        if needs_gradient or torch.compiler.is_compiling():  # what a gradient needs is not written over
            return super().update(key_states, value_states, *args, **kwargs)
        before = self.get_seq_length()
        if before == 0:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states[:, :, :0], value_states[:, :, :0]
        length = before + key_states.shape[-2]
        if not self.has_space(length):
            self.buffers = tuple(reserve(states, length) for states in (self.keys, self.values))
        for buffer, states in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[:, :, before:length] = states
        return self.hand_out(length)

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Beams in another order, into new buffers, so that the next step does not copy them a second time."""
        length = self.get_seq_length()
        if not self.has_space(length + 1):
            return super().reorder_cache(beam_idx)
        rows = beam_idx.to(self.buffers[0].device)
        moved = tuple(buffer.new_empty(rows.shape[0], *buffer.shape[1:]) for buffer in self.buffers)
        for states, buffer in zip(self.views, moved, strict=True):
            torch.index_select(states, 0, rows, out=buffer[:, :, :length])
        self.buffers = moved
        self.hand_out(length)

    def hand_out(self, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of the first `length` positions of the buffers."""
        self.views = tuple(buffer[:, :, :length] for buffer in self.buffers)
        self.keys, self.values = self.views
        return self.views

    def has_space(self, length: int) -> bool:
        """Whether `keys` and `values` are still those handed out, and the buffers are large enough for more."""
        if self.views is None or self.keys is not self.views[0] or self.values is not self.views[1]:
            return False
        return is_writable(self.buffers[0]) and self.buffers[0].shape[2] >= length


def is_writable(states: torch.Tensor) -> bool:
    """Outside inference mode a tensor made in it is not to be written to."""
    return torch.compiler.is_compiling() or torch.is_inference_mode_enabled() or not states.is_inference()


def reserve(states: torch.Tensor, length: int) -> torch.Tensor:
    """A larger tensor that begins with `states`, for `length` positions and half as many again."""
    batch, heads, before, width = states.shape
    buffer = states.new_empty(batch, heads, length + max(length // 2, 64), width)
    buffer[:, :, :before] = states
    return buffer


def grow_in_place(cache: Cache) -> Cache:
    """Makes the layers of an empty `DynamicCache`, as `generate` makes one, grow in place; other caches stay."""
    if type(cache) is DynamicCache and not cache.offloading:
        cache.layers = [
            TfmGrowingLayer() if type(layer) is DynamicLayer and not layer.is_initialized else layer
            for layer in cache.layers
        ]
    return cache


class TfmStateLayer(LinearAttentionLayer, CacheLayerMixin):
    """The state of a layer with linear attention, and how many positions it is the sum of: transformers' own layer does
    not know, and relies on others that do. The number is on the device, so that a compiled step can count on."""

    seen: torch.Tensor | None = None

    def __init__(self, **kwargs):
        CacheLayerMixin.__init__(self)
        LinearAttentionLayer.__init__(self)

    def lazy_initialization(self, recurrent_states: torch.Tensor, **kwargs) -> None:
        self.dtype, self.device = recurrent_states.dtype, recurrent_states.device
        self.seen = torch.zeros((), dtype=torch.long, device=self.device)
        if not torch.compiler.is_compiling():
            torch._dynamo.mark_static_address(self.seen)
        super().lazy_initialization(recurrent_states=recurrent_states, **kwargs)

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs):
        raise NotImplementedError("Linear attention keeps a state, and no keys and values.")

    def update_recurrent_state(
        self, recurrent_states: torch.Tensor, state_idx: int = 0, length: int = 1, **kwargs
    ) -> torch.Tensor:
        """The state after `length` more positions, `(batch, heads, head_dim, head_dim + 1)`."""
        self.has_previous_state[state_idx] = True
        if not self.is_recurrent_states_initialized[state_idx]:
            self.lazy_initialization(recurrent_states=recurrent_states, state_idx=state_idx)
        state = self.recurrent_states[state_idx]
        needs_gradient = state.requires_grad or (torch.is_grad_enabled() and recurrent_states.requires_grad)
        if needs_gradient or not is_writable(state):  # what a gradient needs is not written over
            self.recurrent_states[state_idx], self.seen = recurrent_states.clone(), self.seen + length
        else:
            state.copy_(recurrent_states)
            self.seen += length
        return self.recurrent_states[state_idx]

    def get_seq_length(self) -> int | torch.Tensor:
        """A number; within a graph, where numbers are constants, a tensor `()`."""
        if self.seen is None:
            return 0
        return self.seen if torch.compiler.is_compiling() else int(self.seen)

    def get_mask_sizes(self, query_length: int) -> tuple[int | torch.Tensor, int]:
        return self.get_seq_length() + query_length, 0

    def reset(self) -> None:
        super().reset()
        if self.seen is not None:
            self.seen.zero_()

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.has_previous_state[0]:
            self.recurrent_states[0] = self.recurrent_states[0].repeat_interleave(repeats, dim=0)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        if self.has_previous_state[0]:
            self.recurrent_states[0] = self.recurrent_states[0][indices]


def count_positions(cache: Cache | None, config) -> None:
    """Makes an empty cache's layers of linear attention count; a cache that has yet no layers gets them all.

    Raises:
        ValueError: for a cache that keeps no state where the configuration has linear attention.
    """
    linear = [index for index, kind in enumerate(config.layer_types) if kind == "linear_attention"]
    if not linear or not isinstance(cache, Cache):
        return
    if not cache.layers:
        cache.layers, cache.layer_class_to_replicate = DynamicCache(config=config).layers, None
    cache.layers = [
        TfmStateLayer() if type(layer) is LinearAttentionLayer and not any(layer.has_previous_state.values()) else layer
        for layer in cache.layers
    ]
    for index in linear:
        if index < len(cache.layers) and not isinstance(cache.layers[index], TfmStateLayer):
            raise ValueError(
                f"past_key_values has a {type(cache.layers[index]).__name__} for layer {index}, whose attention is "
                "linear: a cache made with the model's configuration, DynamicCache(config=model.config), has a state."
            )


class TfmSourceCache(DynamicCache):
    """Keys and values of an encoder's states, once for all `beams` rows of the decoder that have the same source.

    Beam search moves a sentence's beams about among themselves: nothing here has to move with them.
    """

    beams = 1

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        rows = torch.arange(beam_idx.shape[0], device=beam_idx.device)
        if self.beams == 1 or not torch.equal(beam_idx // self.beams, rows // self.beams):
            self.expand()
            super().reorder_cache(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.expand()
        super().batch_repeat_interleave(repeats)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        self.expand()
        super().batch_select_indices(indices)

    def expand(self) -> None:
        """Gives every row of the decoder keys and values of its own."""
        if self.beams > 1:
            super().batch_repeat_interleave(self.beams)
            self.beams = 1


def share_sources(
    past_key_values: EncoderDecoderCache, encoder_hidden_states: torch.Tensor, attention_mask: torch.Tensor | None
) -> None:
    """Prepares an empty cache of sources, unless it is a static one that fits, for as few rows as there are sources."""
    cache = past_key_values.cross_attention_cache
    # A static one stays if it is for this source: `generate` gives it the decoder's windows, and the room that a longer
    # one has left over would be attended to.
    rooms = {getattr(layer, "max_cache_len", None) for layer in cache.layers}
    if rooms == {encoder_hidden_states.shape[1]} and not any(cache.is_sliding):
        return
    past_key_values.cross_attention_cache = sources = TfmSourceCache(offloading=cache.offloading)
    # Rows that are equal are not the same to a gradient, which is to reach each of them.
    needs_gradient = torch.is_grad_enabled() and encoder_hidden_states.requires_grad
    readable = not is_traced(encoder_hidden_states) and (attention_mask is None or marks_padding(attention_mask))
    if readable and not needs_gradient:
        sources.beams = equal_rows(encoder_hidden_states, attention_mask)


def equal_rows(encoder_hidden_states: torch.Tensor, attention_mask: torch.Tensor | None) -> int:
    """The largest number such that so many rows in turn are the same, all along the batch."""
    same = (encoder_hidden_states[1:] == encoder_hidden_states[:-1]).flatten(1).all(dim=1)
    if attention_mask is not None:
        same &= (attention_mask[1:] == attention_mask[:-1]).flatten(1).all(dim=1)
    return math.gcd(encoder_hidden_states.shape[0], *((~same).nonzero().flatten() + 1).tolist())
