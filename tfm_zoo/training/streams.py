"""Examples from texts that need not fit into memory: read in blocks, pass after pass, from any place on.

A block is a few thousand documents. What becomes of it, and in what order, follows from the seed, the pass and its
number alone, and batches are cut from the row of all examples: so that a run goes on exactly where it was, and any
number of processes see the same batches. Data sets in memory take the same way.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice, takewhile
from typing import Any

import numpy as np
import torch
from datasets import Dataset, IterableDataset
from torch import Tensor
from torch.utils.data import default_collate

CHARACTERS = 2_000_000  # that end a block, which bounds memory whatever the documents


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
    """Where a block begins."""

    epoch: int = 0  # passes that are done
    block: int = 0  # blocks of the pass that are done
    shard: int = 0  # and shards
    state: dict[str, Any] | None = None  # of the shard's reader; `None`: at its begin
    pieces: int = 0  # read since that state


@dataclass(frozen=True)
class Block:
    """Texts that are read, mixed and made into examples together."""

    place: Place
    texts: list[str]


class Reading:
    """The rest of a pass from a place on; it knows at which place it is.

    Two pieces of one long text are never in the same block, since each of them ends its own.
    """

    def __init__(self, source: TextSource, seed: int, start: Place):
        self.source, self.seed, self.start = source, seed, start

    def __iter__(self) -> Iterator[str]:
        start = self.start
        state, skipped = start.state, start.pieces
        shards = self.source.shards([self.seed, start.epoch], first=start.shard)
        for self.shard_index, self.shard in enumerate(shards, start.shard):
            if state is not None:
                self.shard.load_state_dict(state)
            self.state, self.pieces = state, 0
            for text in self.source.texts(self.shard):
                pieces = _cut(text)
                for index, piece in enumerate(pieces, 1):
                    self.pieces += 1
                    self.at_end_of_text = index == len(pieces)
                    if self.pieces > skipped:
                        yield piece
            state, skipped = None, 0

    def place(self) -> Place:
        """That of what follows the piece read last."""
        if self.at_end_of_text:
            self.state, self.pieces = self.shard.state_dict(), 0
        return Place(self.start.epoch, 0, self.shard_index, self.state, self.pieces)


class Stream(torch.utils.data.Dataset):
    """Examples made from the texts of a source, block by block and pass after pass, without an end.

    It is indexed by a block, and gives the block's place and examples.

    Args:
        make_examples: what becomes of the texts of a block, which are the documents, or where one is longer than a
            block, a part of it; draws from the generator alone. Empty texts are left out.
        block_size: documents of a block.
        size: examples of a pass, if they are known.
    """

    def __init__(
        self,
        source: TextSource,
        make_examples: Callable[[list[str], np.random.Generator], list[Any]],
        seed: int,
        block_size: int = 2000,
        size: int | None = None,
    ):
        self.source, self.make_examples, self.seed = source, make_examples, seed
        self.block_size, self.size = block_size, size

    def blocks(self, place: Place) -> Iterator[Block]:
        """The blocks from a place on.

        Raises:
            ValueError: if a pass holds no text.
        """
        while True:
            reading = Reading(self.source, self.seed, place)
            texts: list[str] = []
            size = 0
            for text in reading:
                if text.strip():
                    texts.append(text)
                    size += len(text)
                if len(texts) == self.block_size or size >= CHARACTERS:
                    yield Block(place, texts)
                    place = replace(reading.place(), block=place.block + 1)
                    texts, size = [], 0
            if texts:
                yield Block(place, texts)
            elif place.block == 0:
                raise ValueError("there is no text to train on")
            place = Place(place.epoch + 1)

    def __getitem__(self, block: Block) -> tuple[Place, list[Any]]:
        rng = np.random.default_rng([self.seed, block.place.epoch, block.place.block])
        examples = self.make_examples(block.texts, rng)
        return block.place, [examples[index] for index in rng.permutation(len(examples))]

    def first_pass(self) -> Iterator[Any]:
        """The examples of the first pass."""
        for block in takewhile(lambda block: block.place.epoch == 0, self.blocks(Place())):
            yield from self[block][1]


class StreamBatches:
    """This process's micro-batches of a stream, and where in it they have come to; all of the same size.

    What [`GlobalBatchSampler`] is for examples that are indexed: here the loader is given blocks of texts (this is its
    `sampler`), its processes make them into examples, and these become batches when they come back.

    Args:
        max_steps: what counts as an epoch if nobody knows how many examples a pass has.
    """

    def __init__(
        self,
        stream: Stream,
        per_device_batch_size: int,
        *,
        accumulation_steps: int = 1,
        num_processes: int = 1,
        process_index: int = 0,
        collate: Callable[[list[Any]], dict[str, Tensor]] | None = None,
        max_steps: int | None = None,
    ):
        self.stream, self.size = stream, stream.size
        self.accumulation_steps, self.num_processes = accumulation_steps, num_processes
        self.process_index = process_index
        self.global_batch_size = per_device_batch_size * num_processes * accumulation_steps
        self.collate = collate or default_collate
        self.steps_per_epoch = -(-self.size // self.global_batch_size) if self.size else max_steps
        if not self.steps_per_epoch:
            raise ValueError("a stream of unknown length needs max_train_steps")
        self.place, self.used = Place(), 0  # a block, and how many of its examples are done with
        self.first_step = 0

    def __len__(self) -> int:
        return self.steps_per_epoch

    def set_position(self, epoch: int, step: int = 0) -> None:
        """Let the next iteration end with the epoch; it begins where the stream is."""
        self.first_step = step

    def state_dict(self) -> dict[str, Any]:
        return {"place": asdict(self.place), "used": self.used}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.place, self.used = Place(**state["place"]), state["used"]

    def __iter__(self) -> Iterator[Block]:
        return self.stream.blocks(self.place)

    def steps(self, loader: Iterable[tuple[Place, list[Any]]]) -> Iterator[list[dict[str, Tensor]]]:
        """The rest of the epoch, by optimiser step, from the blocks that the loader reads."""
        return islice(self._steps(loader), len(self) - self.first_step)

    def _steps(self, loader: Iterable[tuple[Place, list[Any]]]) -> Iterator[list[dict[str, Tensor]]]:
        waiting: list[Any] = []
        used = self.used
        for place, examples in loader:
            waiting += examples[used:]
            begin = 0
            while len(waiting) - begin >= self.global_batch_size:
                batch = waiting[begin : begin + self.global_batch_size]
                begin += self.global_batch_size
                self.place, self.used = place, len(examples) - (len(waiting) - begin)
                yield self._share(batch)
            del waiting[:begin]
            used = 0

    def _share(self, batch: Sequence[Any]) -> list[dict[str, Tensor]]:
        mine = batch[self.process_index :: self.num_processes]
        size = len(mine) // self.accumulation_steps
        return [self.collate(list(mine[start : start + size])) for start in range(0, len(mine), size)]

    def examples(self, step: int) -> int:
        return self.global_batch_size


def as_it_is(made: Any) -> Any:
    """What a loader of a stream collates blocks with: not at all."""
    return made
