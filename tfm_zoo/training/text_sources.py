"""The texts of a data set, in memory or streamed, from any place on."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, takewhile
from math import inf
from typing import Any

import numpy as np
from datasets import Dataset, IterableDataset

from tfm_zoo.training.sources import digest

#: characters at which a chunk of texts ends, which bounds its memory
CHARACTERS = 2_000_000


@dataclass
class TextSource:
    """The texts of a data set: one in each row or, of text files, whose rows are lines, one in each group of lines."""

    rows: Dataset | IterableDataset  # in memory, or streamed from shards (files)
    column: str = "text"
    breaks: bool = True  # whether an empty line ends a text; if not, only the end of its file does, and `CHARACTERS`
    held_out: int = 0  # how many of the first rows of a stream's first shard are not read

    def shards(self, seed: Sequence[int] | None = None, first: int = 0) -> Iterator[IterableDataset]:
        """The shards of a pass from the `first` on, in the random order of a seed or, without one, in their own."""
        rng = np.random.default_rng(seed)
        if isinstance(self.rows, Dataset):  # one shard, shuffled
            shuffled = self.rows.shuffle(generator=rng, keep_in_memory=True)
            yield from [shuffled.to_iterable_dataset()][first:]
            return
        count = self.rows.num_shards
        for index in (range(count) if seed is None else rng.permutation(count).tolist())[first:]:
            shard = self.rows.shard(num_shards=count, index=index)
            yield shard.skip(self.held_out) if index == 0 and self.held_out else shard

    def texts(self, shard: Iterable[dict[str, Any]], whole: bool = False) -> Iterator[str]:
        """The texts of a shard, whose end is the end of a text; with `whole`, texts of many lines are not cut."""
        rows = map(self._text, shard)
        is_line = self.rows.builder_name == "text"
        return _joined(rows, self.breaks, inf if whole else CHARACTERS) if is_line else rows

    def in_memory(self) -> Dataset:
        """All texts, whole."""
        if isinstance(self.rows, Dataset):
            return self.rows
        texts = chain.from_iterable(self.texts(shard, whole=True) for shard in self.shards())
        return Dataset.from_dict({self.column: list(texts)})

    def beginning(
        self, shards: Iterable[IterableDataset], characters: int, documents: int | None = None
    ) -> tuple[list[str], int]:
        """The first texts of these shards, up to so many characters or documents; and how many rows they come from."""
        rows_read = 0

        def counted(shard: IterableDataset) -> Iterator[dict[str, Any]]:
            nonlocal rows_read, characters
            for row in shard:
                rows_read += 1
                characters -= len(self._text(row))
                yield row
                if characters <= 0:
                    break

        parts = (self.texts(counted(shard)) for shard in takewhile(lambda _: characters > 0, shards))
        texts = list(islice(filter(str.strip, chain.from_iterable(parts)), documents))
        return texts, rows_read

    def first_texts(self, characters: int) -> list[str]:
        """Texts with this many characters, from shards in a random order."""
        return self.beginning(self.shards(seed=[0]), characters)[0]

    @property
    def identity(self) -> str:
        """A text that differs for a source with which a run cannot continue."""
        if isinstance(self.rows, Dataset):
            return digest(self.rows[self.column])
        return f"{self.rows.num_shards} shards without {self.held_out} rows"

    def _text(self, row: dict[str, Any]) -> str:
        """The text of a row."""
        text = row[self.column]
        if text is not None and not isinstance(text, str):
            raise ValueError(f"text_column_name {self.column!r}: a row holds {text!r}, not text")
        return text or ""  # JSON may have rows without a value


def hold_out(
    sources: Mapping[str, TextSource], notes: list[str], characters: int, documents: int | None = None
) -> tuple[TextSource, Dataset]:
    """A stream to train on, and texts to validate on, in memory.

    These are the first of the "validation" source or, without one, of the stream's first shard, so that nothing reads
    the others: so many characters or documents at most. A sentence about them is added to `notes`.
    """
    train, validation = sources["train"], sources.get("validation")
    source = validation or train
    texts, rows = source.beginning(islice(source.shards(), None if validation else 1), characters, documents)
    if not texts:
        raise ValueError(f"there is no text in the {'validation' if validation else 'train'} split")
    size = sum(map(len, texts))
    first = f"the first {size:,} characters ({len(texts):,} document{'s' * (len(texts) > 1)})"
    if not validation:
        train = replace(train, held_out=rows)
        if not train.first_texts(1):
            raise ValueError(
                f"nothing is left to train on: the {rows:,} rows of this stream would all be validation texts; give a"
                " validation split or file, or do not stream it"
            )
        notes.append(f"There is no validation split: {first} were taken for it.")
    elif size >= characters or len(texts) == documents:
        notes.append(f"Of the validation split {first} were used.")
    return train, Dataset.from_dict({"text": texts})


def _joined(lines: Iterable[str], breaks: bool, limit: float) -> Iterator[str]:
    """Lines joined to texts: up to an empty line, if it breaks them, or up to `limit` characters."""
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


@dataclass(frozen=True)
class Place:
    """Where a chunk of texts begins."""

    epoch: int = 0  # passes before it
    chunk: int = 0  # chunks of the pass before it
    shard: int = 0  # shards of the pass before it
    state: dict[str, Any] | None = None  # of the shard's reader; None: at its first row
    pieces: int = 0  # of texts, read since that state


class Reader:
    """Reads the rest of a pass, and knows its place.

    A text is read in pieces that each fill a chunk, if it is as long as two chunks or more. Two pieces of one text are
    never in the same chunk, since each of them ends its own.
    """

    def __init__(self, source: TextSource, seed: int, start: Place):
        self.source, self.seed, self.start = source, seed, start
        self.shard_index, self.state, self.pieces = start.shard, start.state, start.pieces
        self.at_end_of_text = False

    def __iter__(self) -> Iterator[str]:
        to_skip = self.pieces
        for shard in self.source.shards([self.seed, self.start.epoch], first=self.shard_index):
            if self.state is not None:
                shard.load_state_dict(self.state)
            self.shard, self.pieces = shard, 0
            for text in self.source.texts(shard):
                starts = [0, *range(CHARACTERS, len(text) - CHARACTERS + 1, CHARACTERS)]
                for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
                    self.pieces += 1
                    self.at_end_of_text = end == len(text)
                    if to_skip:
                        to_skip -= 1
                    else:
                        yield text[start:end]
            self.shard_index, self.state = self.shard_index + 1, None

    def place(self, chunk: int) -> Place:
        """The place behind the last piece, where the chunk of this number begins."""
        if self.at_end_of_text:
            self.state, self.pieces = self.shard.state_dict(), 0
        return Place(self.start.epoch, chunk, self.shard_index, self.state, self.pieces)
