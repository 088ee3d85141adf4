"""The cache of an encoder-decoder's source, which the beams of a sentence share."""

import math

import torch
from transformers import Cache, DynamicCache, EncoderDecoderCache

from .batch import Batch
from .inputs import is_traced, marks_padding


def two_sided_cache(cache: Cache | None, target: Batch, length: int) -> EncoderDecoderCache | None:
    """The caller's cache of both sides, or one around that of the target; `None` if the target has none, as under
    gradient checkpointing. An empty cache of the caller that does not fit a source of this `length` is left alone."""
    if target.cache is None:
        return None
    if isinstance(cache, EncoderDecoderCache) and (
        cache.is_updated.get(0) or takes_source(cache.cross_attention_cache, length)
    ):
        return cache
    return EncoderDecoderCache(target.cache, TfmSourceCache())


def with_shared_source(cache: EncoderDecoderCache, length: int) -> EncoderDecoderCache:
    """A new cache of both sides, with a source that beams share; a static source of this `length` stays as it is."""
    given: Cache = cache.cross_attention_cache
    if any(hasattr(layer, "max_cache_len") for layer in given.layers) and takes_source(given, length):
        return cache
    return EncoderDecoderCache(cache.self_attention_cache, TfmSourceCache(offloading=given.offloading))


class TfmSourceCache(DynamicCache):
    """Keys and values of an encoder's states, kept once for every `beams` rows of the decoder with the same source.

    Beam search reorders the beams within a sentence, which leaves this cache as it is.
    """

    beams = 1

    def count_beams(self, encoder_hidden_states: torch.Tensor, attention_mask: torch.Tensor | None) -> None:
        """Counts, before anything is stored, how many consecutive rows have the same source.

        Args:
            encoder_hidden_states: `(rows, source length, hidden_size)`.
            attention_mask: `(rows, source length)`, 0 at padding.
        """
        # Each row needs its own gradient, even if rows are equal.
        needs_gradient = torch.is_grad_enabled() and encoder_hidden_states.requires_grad
        is_readable = not is_traced(encoder_hidden_states) and (attention_mask is None or marks_padding(attention_mask))
        if is_readable and not needs_gradient:
            self.beams = equal_rows(encoder_hidden_states, attention_mask)

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


def equal_rows(encoder_hidden_states: torch.Tensor, attention_mask: torch.Tensor | None) -> int:
    """The largest `n` such that the batch consists of groups of `n` consecutive equal rows."""
    same = (encoder_hidden_states[1:] == encoder_hidden_states[:-1]).flatten(1).all(dim=1)
    if attention_mask is not None:
        same &= (attention_mask[1:] == attention_mask[:-1]).flatten(1).all(dim=1)
    return math.gcd(encoder_hidden_states.shape[0], *((~same).nonzero().flatten() + 1).tolist())


def takes_source(cache: Cache, length: int) -> bool:
    """Whether an empty cache has room for exactly `length` positions of a source.

    Empty positions of a larger static cache would be attended to; a cache with a window would forget some.
    """
    rooms = {getattr(layer, "max_cache_len", length) for layer in cache.layers}
    return rooms <= {length} and not any(cache.is_sliding)
