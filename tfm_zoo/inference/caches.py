"""A caller's cache, into which a pass over kept tokens writes what the official class would."""

from typing import NamedTuple

import torch
from transformers import Cache

from ..models.batch import KeptTokens


class Form(NamedTuple):
    """How the official class lays out what it caches, where the zoo does not do so.

    Args:
        channels: of a key, the zoo's channel in each official place; `None` if they stand as in the zoo.
        copies: how often each key and value head is kept: once for every query head that reads it (Falcon).
    """

    channels: tuple[int, ...] | None = None
    copies: int = 1

    @property
    def is_usual(self) -> bool:
        return self == Form()

    def of_keys(self, keys: torch.Tensor) -> torch.Tensor:
        return self.of_values(keys if self.channels is None else keys[..., self.channels])

    def of_values(self, heads: torch.Tensor) -> torch.Tensor:
        return heads if self.copies == 1 else heads.repeat_interleave(self.copies, dim=1)


class Recorded:
    """An empty cache that is filled: it gets keys and values of the padded batch, as the official class lays them out;
    attention reads those of the kept tokens, as they were computed."""

    def __init__(self, cache: Cache, kept: KeptTokens | None, form: Form):
        self.cache, self.kept, self.form = cache, kept, form

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args, **kwargs):
        """`(batch, heads, length, head_dim)` in and out."""
        keys, values = self.form.of_keys(key_states), self.form.of_values(value_states)
        self.cache.update(self.whole(keys), self.whole(values), layer_idx, *args, **kwargs)
        return key_states, value_states

    def get_mask_sizes(self, length: int, *args) -> tuple[int, int]:
        """How many keys attention reads, and which is the first: those of a pass without a cache."""
        return length, 0

    def get_seq_length(self, *args) -> int:
        return 0

    def whole(self, states: torch.Tensor) -> torch.Tensor:
        return states if self.kept is None else self.kept.restore(states.transpose(1, 2)).transpose(1, 2)
