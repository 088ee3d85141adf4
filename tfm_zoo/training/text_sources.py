"""Texts of a data set, in memory or streamed, from any place on."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from datasets import Dataset, IterableDataset

CHARACTERS = 2_000_000  # that end a block of texts, which bounds memory whatever they are


@dataclass
class TextSource:
    """The texts of a data set: that of each row, or, in a data set of lines, those between empty lines.

    Args:
        rows: in memory, or streamed from shards (files).
        held_out: rows at the begin of the first shard of a stream that are not read.
    """

    rows: Dataset | IterableDataset
    column: str = "text"
    by_line: bool = False
    held_out: int = 0

    def shards(self, seed: Sequence[int], first: int = 0) -> Iterator[IterableDataset]:
        """Those of a pass, in an order drawn by the seed, from the `first` on. Rows in memory are one, and shuffled."""
        rng = np.random.default_rng(seed)
        if isinstance(self.rows, Dataset):
            shuffled = self.rows.shuffle(generator=rng, keep_in_memory=True)
            yield from [shuffled.to_iterable_dataset()][first:]
            return
        count = self.rows.num_shards
        for index in rng.permutation(count)[first:].tolist():
            shard = self.rows.shard(num_shards=count, index=index)
            yield shard.skip(self.held_out) if index == 0 and self.held_out else shard

    def texts(self, shard: Iterable[dict[str, Any]]) -> Iterator[str]:
        """The texts that the rows of a shard are, or make."""
        rows = (self._checked(row) for row in shard)
        return _paragraphs(rows) if self.by_line else rows

    def _checked(self, row: dict[str, Any]) -> str:
        text = row[self.column]
        if not isinstance(text, str):
            raise ValueError(f"text_column_name {self.column!r}: a row holds {text!r}, not text")
        return text


def _paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """Lines up to an empty one, or up to so many characters, as one text."""
    paragraph: list[str] = []
    size = 0
    for line in lines:
        if line.strip():
            paragraph.append(line)
            size += len(line)
        if paragraph and (size >= CHARACTERS or not line.strip()):
            yield "\n".join(paragraph)
            paragraph, size = [], 0
    if paragraph:
        yield "\n".join(paragraph)


def _cut(text: str) -> list[str]:
    """A text as it is; or if it is as long as two blocks or more, in pieces that each fill one."""
    cuts = range(CHARACTERS, len(text) - CHARACTERS + 1, CHARACTERS)
    return [text[begin:end] for begin, end in zip((0, *cuts), (*cuts, None), strict=True)]


@dataclass(frozen=True)
class Place:
    """Where a block of texts begins."""

    epoch: int = 0  # passes that are done
    block: int = 0  # blocks of the pass that are done
    shard: int = 0  # and shards
    state: dict[str, Any] | None = None  # of the shard's reader; `None`: at its begin
    pieces: int = 0  # read since that state


class Reading:
    """The rest of a pass from a place on; it knows at which place it is.

    Two pieces of one long text are never in the same block, since each of them ends its own.
    """

    def __init__(self, source: TextSource, seed: int, start: Place):
        self.source, self.seed, self.start = source, seed, start
        self.shard_index, self.state, self.pieces = start.shard, start.state, start.pieces
        self.at_end_of_text = False

    def __iter__(self) -> Iterator[str]:
        skipped = self.pieces  # those that were read since the state
        for shard in self.source.shards([self.seed, self.start.epoch], first=self.shard_index):
            if self.state is not None:
                shard.load_state_dict(self.state)
            self.shard, self.pieces = shard, 0
            for text in self.source.texts(shard):
                pieces = _cut(text)
                for index, piece in enumerate(pieces, 1):
                    self.pieces += 1
                    self.at_end_of_text = index == len(pieces)
                    if skipped:
                        skipped -= 1
                    else:
                        yield piece
            self.shard_index, self.state = self.shard_index + 1, None

    def place(self, block: int) -> Place:
        """Where it is, after the piece read last, as the begin of a block."""
        if self.at_end_of_text:
            self.state, self.pieces = self.shard.state_dict(), 0
        return Place(self.start.epoch, block, self.shard_index, self.state, self.pieces)
