"""Texts in memory or streamed, and the options of tasks with such texts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, takewhile
from math import inf
from typing import ClassVar

import numpy as np
from datasets import Dataset, IterableDataset
from typing_extensions import Self

from tfm_zoo.data.options import option
from tfm_zoo.data.row_files import matching_files
from tfm_zoo.data.splits import digest, pluralize
from tfm_zoo.training.options import TrainingOptions
from tfm_zoo.training.tokenizers import TOKENIZER_TEXT

#: characters at which a chunk of texts ends, which bounds its memory
CHARACTERS = 2_000_000
ROWS = 16  # of a shard that are read at once


@dataclass(frozen=True)
class StreamOptions(TrainingOptions):
    """The options of tasks whose data are running texts, which need not fit into memory or onto the disk."""

    default_model: ClassVar = None
    roles: ClassVar = ("train", "validation")
    text_rows: ClassVar = "document"
    # Options of rows and of their predictions, which such texts lack
    test_file: ClassVar = None
    test_split_percentage: ClassVar = 0
    metrics: ClassVar = None
    pad_to_max_length: ClassVar = False
    group_by_length: ClassVar = False

    text_column_name: str | None = option(None, "Column of the texts; default: 'text', or the only one.")
    streaming: bool = option(False, "Read the training texts while training; needs max_train_steps.")
    train_split_name: str | None = option(None, "Split to train on; default: the one that begins with 'train'.")

    def with_defaults(self) -> Self:
        if self.streaming and not self.max_train_steps:
            raise ValueError("streaming needs max_train_steps: the number of steps in a pass over a stream is unknown")
        if self.streaming and self.checkpointing_steps == "epoch":
            raise ValueError("checkpointing_steps 'epoch': a stream has no epochs; give a number of steps")
        return super().with_defaults()

    @property
    def files_identity(self) -> str | None:
        """A digest of the streamed files' names and sizes, wherever they lie; None if no files are streamed."""
        if not (self.streaming and self.train_file):
            return None
        return digest(f"{path.name} {path.stat().st_size}" for path in matching_files(self.train_file))


@dataclass
class TextSource:
    """The texts of a data set: each row is one; in text files, whose rows are lines, each group of lines is one."""

    rows: Dataset | IterableDataset  # in memory, or streamed from shards (files)
    column: str = "text"
    breaks: bool = True  # whether an empty line ends a text; the end of a file and a limit of characters always do
    held_out: int = 0  # how many of the first rows of a stream's first shard are not read

    def shards(
        self, seed: Sequence[int] | None = None, first: int = 0, part: int = 0, parts: int = 1
    ) -> Iterator[IterableDataset]:
        """The shards of a part of the texts, which has every `parts`-th of them, without the first `first`; in the
        random order that `seed` gives. Of texts in memory, a part has every `parts`-th row, in one shard."""
        count = len(self.rows) if isinstance(self.rows, Dataset) else self.rows.num_shards
        order = np.arange(count) if seed is None else np.random.default_rng(seed).permutation(count)
        if isinstance(self.rows, Dataset):
            yield self.rows.select(order[part::parts], keep_in_memory=True).to_iterable_dataset()
            return
        for index in order[part::parts][first:].tolist():
            shard = self.rows.shard(num_shards=count, index=index)
            yield shard.skip(self.held_out) if index == 0 and self.held_out else shard

    def parts_for(self, readers: int) -> int:
        """The most parts, a power of two up to `readers`, that have the same number of shards or at least four each."""
        if isinstance(self.rows, Dataset):
            return readers
        count = self.rows.num_shards
        return max(2**i for i in range(readers.bit_length()) if 2**i == 1 or count % 2**i == 0 or count >= 4 * 2**i)

    def lines(self, shard: IterableDataset) -> Iterator[str]:
        """What stands in each row. (In a `DataLoader`'s worker, a data set that is not read in batches skips rows.)"""
        for batch in shard.iter(batch_size=ROWS):
            for text in batch[self.column]:
                if text is not None and not isinstance(text, str):
                    raise ValueError(f"text_column_name {self.column!r}: a row holds {type(text).__name__}, not text")
                yield text or ""  # JSON may have rows without a value

    def texts(self, lines: Iterable[str], is_whole: bool = False) -> Iterator[str]:
        """The texts that the rows of a shard make; if `is_whole`, those of many lines are not cut."""
        if self.rows.builder_name != "text":
            return iter(lines)
        limit = CHARACTERS if self.breaks else CHARACTERS // 16  # running text: cut into enough texts for many readers
        return joined(lines, self.breaks, inf if is_whole else limit)

    def in_memory(self) -> Dataset:
        """All texts, whole."""
        if isinstance(self.rows, Dataset):
            return self.rows
        texts = chain.from_iterable(self.texts(self.lines(shard), is_whole=True) for shard in self.shards())
        return Dataset.from_dict({self.column: list(texts)})

    def beginning(
        self, shards: Iterable[IterableDataset], characters: int, documents: int | None = None
    ) -> tuple[list[str], int]:
        """The first texts of these shards, up to a number of characters or documents; and the number of their rows."""
        rows_read = 0

        def beginning_of(shard: IterableDataset) -> Iterator[str]:
            nonlocal rows_read, characters
            for line in self.lines(shard):
                rows_read += 1
                characters -= len(line)
                yield line
                if characters <= 0:
                    break

        parts = (self.texts(beginning_of(shard)) for shard in takewhile(lambda _: characters > 0, shards))
        return list(islice(filter(str.strip, chain.from_iterable(parts)), documents)), rows_read

    def first_texts(self) -> Iterator[str]:
        """Texts to make a tokenizer from, of shards in a random order. They are read when the first is asked for."""
        yield from self.beginning(self.shards(seed=[0]), TOKENIZER_TEXT)[0]

    @property
    def identity(self) -> str:
        """A text that changes when a run can no longer continue with this source."""
        if isinstance(self.rows, Dataset):
            return digest(self.rows[self.column])
        return f"{self.rows.num_shards} shards without {self.held_out} rows"


def hold_out(
    sources: Mapping[str, TextSource], notes: list[str], characters: int, documents: int | None = None
) -> tuple[TextSource, Dataset]:
    """A stream to train on, and the first texts of the "validation" source, up to a number of characters or documents;
    without such a source, of the stream's first shard. A sentence about them is added to `notes`."""
    train, validation = sources["train"], sources.get("validation")
    source = validation or train
    texts, rows = source.beginning(islice(source.shards(), None if validation else 1), characters, documents)
    if not texts:
        raise ValueError(f"there is no text in the {'validation' if validation else 'train'} split")
    size = sum(map(len, texts))
    first = f"the first {size:,} characters ({pluralize(len(texts), 'document')})"
    if not validation:
        train = replace(train, held_out=rows)
        notes.append(f"There is no validation split: {first} were taken for it.")
    elif size >= characters or len(texts) == documents:
        notes.append(f"Of the validation split {first} were used.")
    return train, Dataset.from_dict({"text": texts})


def joined(lines: Iterable[str], breaks: bool, limit: float) -> Iterator[str]:
    """Lines joined to texts. A text ends at `limit` characters and, if `breaks`, at an empty line."""
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
