"""Attention within a sliding window whose work grows with the window: blocks of positions meet the blocks beside them.

A mask over all pairs would cost the square of the length, to make and to read, however small the window.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn import functional as F

from .unpadding import is_traced, marks_padding

FAR = -(1 << 30)  # where padding stands: out of everybody's reach but its own
WORTH_IT = 4  # so many windows long an input is, that is taken in blocks


class Window(NamedTuple):
    """Who sees whom, in the place of a mask. (A tuple, so that device hooks move the tensor in it.)

    Args:
        places: int32 `(batch or 1, length)`, where each position stands; padding is far away.
        left: how many positions to its left one sees.
        right: how many to its right.
    """

    places: torch.IntTensor
    left: int
    right: int

    def sees(self, queries: torch.IntTensor, keys: torch.IntTensor) -> torch.BoolTensor:
        """Places `(..., queries)` and `(..., keys)` to `(..., queries, keys)`: whether they are within reach."""
        distance = queries.unsqueeze(-1) - keys.unsqueeze(-2)
        return (distance <= self.left) & (distance >= -self.right)


def make_window(
    config, inputs: torch.Tensor, attention_mask: torch.Tensor | None, right: int | None = None
) -> Window | None:
    """The window of inputs `(batch, length, ...)`; `None` where a mask over all pairs is needed, or is as good: for an
    implementation that is not sdpa, in a graph, and for short inputs.

    Args:
        attention_mask: `(batch, length)`, 0 at padding.
        right: how many positions to its right one sees; `None`: as many as to its left.
    """
    size, length = config.sliding_window, inputs.shape[1]
    masked = attention_mask is not None
    if config._attn_implementation != "sdpa" or is_traced(inputs) or length < WORTH_IT * size:
        return None
    if masked and not (marks_padding(attention_mask) and attention_mask.shape[1] == length):
        return None
    places = torch.arange(length, dtype=torch.int32, device=inputs.device).unsqueeze(0)
    if masked:
        places = places.where(attention_mask.to(inputs.device).bool(), FAR)
    # To the left, a window that reads from the left counts the position itself.
    return Window(places, size, size) if right is None else Window(places, size - 1, right)


def attend_within(
    attention: Callable,
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    window: Window,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """Calls `attention`, a function of transformers' attention interface, for all blocks at once; heads of shape
    `(batch, heads, length, head_dim)`. There are no weights over all pairs to return."""
    batch, _, length, _ = query.shape
    block = max(window.left, window.right, 1)
    blocks = -(-length // block)
    gap = blocks * block - length
    sides = (block if window.left else 0, gap + (block if window.right else 0))
    span = block + sides[0] + sides[1] - gap

    def in_blocks(states: torch.Tensor) -> torch.Tensor:
        """`(batch, heads, length, head_dim)` to `(batch * blocks, heads, block, head_dim)`."""
        return F.pad(states, (0, 0, 0, gap)).unflatten(2, (blocks, block)).transpose(1, 2).flatten(0, 1)

    def beside(states: torch.Tensor) -> torch.Tensor:
        """Each block with those beside it: `(batch * blocks, heads, span, head_dim)`."""
        parts = F.pad(states, (0, 0, *sides)).unfold(2, span, block)  # (batch, heads, blocks, head_dim, span)
        return parts.permute(0, 2, 1, 4, 3).flatten(0, 1)

    places = window.places.expand(batch, -1)
    queries = F.pad(places, (0, gap), value=FAR).unflatten(1, (blocks, block))
    keys = F.pad(places, sides, value=FAR).unfold(1, span, block)
    mask = window.sees(queries, keys).flatten(0, 1).unsqueeze(1)
    output, _ = attention(module, in_blocks(query), beside(key), beside(value), mask, **kwargs)
    return output.unflatten(0, (batch, blocks)).flatten(1, 2)[:, :length], None
