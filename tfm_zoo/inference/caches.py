"""A caller's cache, into which a pass over kept tokens writes what the official class would."""

import torch
from transformers import Cache

from ..converters.tensor_rules import Interleaved
from ..models.batch import KeptTokens
from ..models.padding import restore


class Recorded:
    """An empty cache that is filled: it gets keys and values of the padded batch, in the official order of channels;
    attention reads those of the kept tokens, as they were computed."""

    def __init__(self, cache: Cache, kept: KeptTokens | None, keys: Interleaved | None):
        self.cache, self.kept, self.keys = cache, kept, keys

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args, **kwargs):
        """`(batch, heads, length, head_dim)` in and out."""
        keys = key_states if self.keys is None else as_official(key_states, self.keys.rotated)
        self.cache.update(self.whole(keys), self.whole(value_states), layer_idx, *args, **kwargs)
        return key_states, value_states

    def whole(self, states: torch.Tensor) -> torch.Tensor:
        return states if self.kept is None else restore(states.transpose(1, 2), self.kept).transpose(1, 2)


def as_official(keys: torch.Tensor, rotated: int) -> torch.Tensor:
    """Keys with the rotated channels of each head in pairs side by side."""
    pairs = keys[..., :rotated].unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)
    return torch.cat((pairs, keys[..., rotated:]), dim=-1)
