"""ALiBi between positions that are counted in the mask (BLOOM), and rounded by them (Falcon)."""

import torch

from .batch import Batch, count_in_mask, is_pad_mask, is_traced
from .position_bias import BiasedLayouts, TfmAlibi


class TfmCountedAlibi(TfmAlibi):
    """ALiBi of distances, or of positions."""

    def __init__(self, config):
        super().__init__(config, is_causal=True)
        self.is_rounded = config.round_alibi

    def forward(
        self, distances: torch.LongTensor, layer: int, positions: tuple[torch.LongTensor, ...] | None = None
    ) -> torch.Tensor:
        """Distances `(n,)` to biases `(heads, n)`; or positions, of keys `(batch or 1, keys)` and of queries, to biases
        `(batch or 1, heads, queries, keys)`. What is rounded depends on the key alone: for a query it differs from the
        bias by distance in one constant, which the softmax cancels."""
        if positions is None:
            return super().forward(distances, layer)
        keys, queries = positions[0][:, None, None], positions[1][:, None, :, None]
        slopes = self.slopes.to(keys.device)[:, None, None]
        biases = slopes.bfloat16() * keys if self.is_rounded else slopes.float() * (keys - queries)
        return (biases.float() * self.scale).to(self.slopes.dtype)


class CountedLayouts(BiasedLayouts):
    """[`BiasedLayouts`] by positions, where these are not consecutive, or the bias is rounded by them."""

    def __init__(self, stack, batch: Batch):
        super().__init__(stack, batch)
        self.known = known = key_positions(batch.attention_mask, self.device)
        has_gaps = known is not None and is_traced(known)
        if known is not None and not has_gaps:  # padding may stand between the tokens of a row
            begins = (known[:, 1:] >= 0) & (known[:, :-1] < 0)
            has_gaps = bool((begins.sum(dim=1) + (known[:, 0] >= 0) > 1).any())
        # (A class of somebody's own may have another bias.)
        self.reads_positions = isinstance(self.bias, TfmCountedAlibi) and (self.bias.is_rounded or has_gaps)

    def of_pairs(self, distances: torch.LongTensor, layer: int, keys: int, *starts: int | torch.Tensor) -> torch.Tensor:
        if not self.reads_positions:
            return super().of_pairs(distances, layer, keys, *starts)
        counts, known = (keys, self.queries), self.known
        places = [torch.arange(n, device=self.device) + start for n, start in zip(counts, starts, strict=True)]
        # A static cache has room for more keys than there are.
        positions = (each[None] if known is None else known[:, each.clamp(max=known.shape[1] - 1)] for each in places)
        return self.bias(distances, layer, tuple(positions)).to(self.device)


def key_positions(mask: object, device: torch.device) -> torch.LongTensor | None:
    """The positions `(batch, keys)` of all keys, cached ones too, by the caller's mask; `None` if it does not say."""
    if isinstance(mask, dict) and isinstance(mask := mask.get("full_attention"), torch.Tensor):
        # `generate` makes such masks for a static cache: what the last query sees. They may go on behind the tokens.
        mask = mask[:, 0, -1] if mask.dtype == torch.bool else mask[:, 0, -1] == 0
    return count_in_mask(mask.to(device)) if is_pad_mask(mask) else None
