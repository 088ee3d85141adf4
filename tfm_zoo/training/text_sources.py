"""Texts of a data set, in memory or streamed, from any place on."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Self

import numpy as np
from datasets import Dataset, IterableDataset

CHARACTERS = 2_000_000  # that end a block of texts, which bounds memory whatever they are


@dataclass
class TextSource:
    """The texts of a data set: that of each row, or, in a data set of lines, those that its lines make.

    Args:
        rows: in memory, or streamed from shards (files).
        by_line: a row is a line.
        breaks: an empty line ends a text; if not, nothing but the end of the file does (and `CHARACTERS`).
        held_out: rows at the begin of the first shard of a stream that are not read.
    """

    rows: Dataset | IterableDataset
    column: str = "text"
    by_line: bool = False
    breaks: bool = True
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
        return _joined(rows, self.breaks) if self.by_line else rows

    def begin(self, characters: int) -> tuple[list[str], int]:
        """The texts that the first rows of a stream make, of so many characters, and how many rows these are."""
        rows = []
        for row in self.rows.shard(num_shards=self.rows.num_shards, index=0):
            rows.append(row)
            characters -= len(self._checked(row))
            if characters <= 0:
                break
        return [text for text in self.texts(rows) if text.strip()], len(rows)

    def without(self, rows: int) -> Self:
        """The stream without so many of its first rows, which validate.

        Raises:
            ValueError: if no text is left.
        """
        rest = replace(self, held_out=rows)
        if not rest.first_texts(1):
            raise ValueError(f"the {rows} rows of this stream all validate: give validation data, or do not stream it")
        return rest

    def first_texts(self, characters: int) -> list[str]:
        """The first texts, up to so many characters."""
        texts = []
        for text in chain.from_iterable(map(self.texts, self.shards(seed=[0]))):
            texts.append(text)
            characters -= len(text)
            if characters <= 0:
                break
        return texts

    def _checked(self, row: dict[str, Any]) -> str:
        text = row[self.column]
        if not isinstance(text, str):
            raise ValueError(f"text_column_name {self.column!r}: a row holds {text!r}, not text")
        return text


def _joined(lines: Iterable[str], breaks: bool) -> Iterator[str]:
    """Lines up to an empty one (if it breaks them), or up to so many characters, as one text."""
    text: list[str] = []
    size = 0
    for line in lines:
        is_break = breaks and not line.strip()
        if not is_break:
            text.append(line)
            size += len(line)
        if text and (size >= CHARACTERS or is_break):
            yield "\n".join(text)
            text, size = [], 0
    if text:
        yield "\n".join(text)


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
