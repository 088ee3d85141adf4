"""transformers' dynamic cache, without a copy of the whole past at every step."""

import torch
from transformers import Cache, DynamicCache

from .compat import DynamicLayer


class TfmGrowingLayer(DynamicLayer):
    """Keys and values of one layer at the head of tensors that have room for more.

    `keys` and `values` are, as in `DynamicLayer`, of shape `(batch, heads, length, head_dim)`. Whatever replaces them
    (reordering beams, cropping) loses the room, and the next step makes new: what was handed out is never written over.
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
        self.views = tuple(buffer[:, :, :length] for buffer in self.buffers)
        self.keys, self.values = self.views
        return self.views

    def has_space(self, length: int) -> bool:
        """Whether `keys` and `values` are still those handed out, and the buffers are large enough for more."""
        if self.views is None or self.keys is not self.views[0] or self.values is not self.views[1]:
            return False
        # Outside inference mode a tensor made in it is not to be written to.
        writable = torch.is_inference_mode_enabled() or not self.buffers[0].is_inference()
        return writable and self.buffers[0].shape[2] >= length


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
