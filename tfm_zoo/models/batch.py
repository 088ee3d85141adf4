"""What the core reads: tuples without logic. (Device hooks move the tensors that they find in a tuple.)"""

from typing import Literal, NamedTuple

import torch
from transformers import Cache, EncoderDecoderCache

FAR = -(1 << 30)  # stands for the place of padding, out of reach of every other place


class Tokens(NamedTuple):
    """What is read at each position.

    Args:
        ids_or_embeddings: `(batch, length)`, or `(batch, length, embedding_size)`.
        token_type_ids: `(batch or 1, length)`, segments, or `None`.
        position_ids: `(batch or 1, length)`, from 0; -1 at padding if only real tokens are counted. `None`: not given.
    """

    ids_or_embeddings: torch.Tensor
    token_type_ids: torch.LongTensor | None = None
    position_ids: torch.LongTensor | None = None


class KeptTokens(NamedTuple):
    """The tokens of a padded batch that are computed, laid end to end in one row.

    Args:
        indices: `(tokens,)`, the index of each in the flattened padded batch.
        shape: (batch, length) of the padded batch.
        lengths: number of tokens of each sequence: of each row, or of each document.
        bounds: int32 `(sequences + 1,)`, where each begins in the row, and where the last one ends.
    """

    indices: torch.LongTensor
    shape: tuple[int, int]
    lengths: list[int]
    bounds: torch.IntTensor

    @property
    def is_whole(self) -> bool:
        """Whether these are all tokens of the batch, and each row is a sequence."""
        rows, length = self.shape
        return len(self.lengths) == rows and sum(self.lengths) == rows * length


class Window(NamedTuple):
    """Who sees whom: a token sees `left` places before its own and `right` after it. `places` are int32
    `(batch or 1, length)`, `FAR` at padding."""

    places: torch.IntTensor
    left: int
    right: int


class Layout(NamedTuple):
    """Who attends to whom in the layers of one type, and how attention runs ([`choose_kernel`] matches the mode):

        "whole"       on the tokens as they are, by the mask, or in blocks by the window
        "restored"    on the padded batch, which is restored for this call where `queries` or `keys` are kept tokens
        "apart"       sequence by sequence, by `parts`
        "by_bounds"   once for all sequences, which lie end to end, by the bounds of `queries` and `keys`

    Args:
        mask: made by transformers' mask functions for the attention implementation; for linear attention
            `(batch, length)`, 0 at padding. `None`: each position sees all others, or (causal) all before it.
        window: replaces the mask where attention runs in blocks.
        queries, keys: the kept tokens, if queries, or keys, stand end to end in one row. `None`: they are padded.
        parts: a layout for each sequence.
        bias: of positions, `(batch, heads, queries, keys)`, where it is not in the mask: flex attention has a mask of
            blocks, to which no number can be added, and adds the bias to each score.
    """

    mask: torch.Tensor | None = None
    window: Window | None = None
    mode: Literal["whole", "restored", "apart", "by_bounds"] = "whole"
    queries: KeptTokens | None = None
    keys: KeptTokens | None = None
    parts: list["Layout"] | None = None
    bias: torch.Tensor | None = None


EVERYTHING = Layout()  # no limits but causality


class Source(NamedTuple):
    """What the decoder of an encoder-decoder reads of the source.

    Args:
        states: `(sources, source length, hidden_size)`, the encoder's last hidden state, or `(1, tokens, hidden_size)`.
        restored: the kept tokens that the states are of, where keys and values are restored to the padded source for
            attention. `None`: they are used as they are.
        layout: which positions of the source are seen.
        cache: keeps keys and values of both sides; the source's are computed once in a generation.
    """

    states: torch.Tensor
    restored: KeptTokens | None
    layout: Layout
    cache: EncoderDecoderCache | None


class Batch(NamedTuple):
    """What a stack reads.

    Args:
        tokens: of shape `(1, tokens)` where only some are `kept`.
        layouts: who attends to whom, for each type of layer.
        kept: the tokens that are computed. `None`: all.
        cache: keys and values of earlier positions.
        returns_cache: whether the cache is in the outputs.
        attention_mask: the caller's; in an encoder `None` if it hides nothing.
    """

    tokens: Tokens
    layouts: dict[str, Layout]
    kept: KeptTokens | None = None
    cache: Cache | None = None
    returns_cache: bool = False
    attention_mask: object = None
