"""Texts of a data set, in memory or streamed, from any place on."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, takewhile
from math import inf
from typing import Any

import numpy as np
from datasets import Dataset, IterableDataset

from tfm_zoo.training.sources import digest

CHARACTERS = 2_000_000  # that end a block of texts, which bounds memory whatever they are


@dataclass
class TextSource:
    """The texts of a data set: that of each row, or, in a data set of lines, those that its lines make.

    A row without a value, as JSON has them, is an empty text.

    Args:
        rows: in memory, or streamed from shards (files).
        by_line: a row is a line.
        breaks: an empty line ends a text; if not, nothing but the end of its file does, and `CHARACTERS`.
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

    def in_order(self) -> Iterator[IterableDataset]:
        """All shards of a stream, as they come."""
        count = self.rows.num_shards
        return (self.rows.shard(num_shards=count, index=index) for index in range(count))

    def texts(self, shard: Iterable[dict[str, Any]], whole: bool = False) -> Iterator[str]:
        """The texts that the rows of a shard are, or make; its end is that of a text.

        Args:
            whole: however long they are.
        """
        rows = map(self._text, shard)
        return _joined(rows, self.breaks, inf if whole else CHARACTERS) if self.by_line else rows

    def in_memory(self) -> Dataset:
        """All texts, whole."""
        if isinstance(self.rows, Dataset):
            return self.rows
        texts = chain.from_iterable(self.texts(shard, whole=True) for shard in self.in_order())
        return Dataset.from_dict({self.column: list(texts)})

    def begin(
        self, shards: Iterable[IterableDataset], characters: int, documents: int | None = None
    ) -> tuple[list[str], int]:
        """The first texts of these shards, and how many rows they were read from.

        Args:
            characters: end with the row, which may be a line of a text, that has so many of them before its end.
            documents: end with so many texts at the latest.
        """
        rows_read = 0

        def counted(shard: IterableDataset) -> Iterator[dict[str, Any]]:
            nonlocal rows_read, characters
            for row in shard:
                rows_read += 1
                characters -= len(self._text(row))
                yield row
                if characters <= 0:
                    break

        some = (self.texts(counted(shard)) for shard in takewhile(lambda _: characters > 0, shards))
        texts = list(islice(filter(str.strip, chain.from_iterable(some)), documents))
        return texts, rows_read

    def first_texts(self, characters: int) -> list[str]:
        """Texts of so many characters, from shards in any order."""
        return self.begin(self.shards(seed=[0]), characters)[0]

    def without(self, rows: int) -> "TextSource":
        """The stream without so many of its first rows, which validate.

        Raises:
            ValueError: if no text is left.
        """
        rest = replace(self, held_out=rows)
        if not rest.first_texts(1):
            raise ValueError(
                f"nothing is left to train on: the first {rows:,} rows of this stream, which are all, would validate;"
                " give a validation split or file, or do not stream it"
            )
        return rest

    @property
    def identity(self) -> str:
        """What another source, with which a run cannot go on, has otherwise."""
        if isinstance(self.rows, Dataset):
            return digest(self.rows[self.column])
        return f"{self.rows.num_shards} shards without {self.held_out} rows"

    def _text(self, row: dict[str, Any]) -> str:
        text = row[self.column]
        if text is None:
            return ""
        if not isinstance(text, str):
            raise ValueError(f"text_column_name {self.column!r}: a row holds {text!r}, not text")
        return text


def hold_out(
    sources: Mapping[str, TextSource], notes: list[str], characters: int, documents: int | None = None
) -> tuple[TextSource, Dataset]:
    """A stream to train on and, in memory, texts to validate on: the first of its "validation" source, or its own.

    Its own are those of the first shard alone, so that the others need not be looked at.

    Args:
        notes: is told what was done.
        characters, documents: of these texts, at most.

    Raises:
        ValueError: if there is no text to validate on, or none is left to train on.
    """
    train, validation = sources["train"], sources.get("validation")
    held = validation or train
    texts, rows = held.begin(held.in_order() if validation else islice(held.in_order(), 1), characters, documents)
    if not texts:
        raise ValueError(f"there is no text in the {'validation' if validation else 'train'} split")
    size = sum(map(len, texts))
    first = f"the first {size:,} characters ({len(texts):,} document{'s' * (len(texts) > 1)})"
    if not validation:
        train = train.without(rows)
        notes.append(f"There is no validation split: {first} were taken for it.")
    elif size >= characters or len(texts) == documents:
        notes.append(f"Of the validation split {first} were used.")
    return train, Dataset.from_dict({"text": texts})


def _joined(lines: Iterable[str], breaks: bool, limit: float) -> Iterator[str]:
    """Lines up to an empty one (if it breaks them), or up to `limit` characters, as one text."""
    text: list[str] = []
    size = 0
    for line in lines:
        is_break = breaks and not line.strip()
        if not is_break:
            text.append(line)
            size += len(line)
        if text and (size >= limit or is_break):
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
