"""Examples made from texts while training reads them. The texts may be larger than memory.

A stream has a fixed number of readers, each of which reads texts of its own, in chunks. The seed, the reader, the pass
and the chunk's number decide what examples a chunk gives, and their order. The examples of a run come from the readers
in turn, and batches are cut from their sequence. So any number of processes, and of workers in each, see the same
batches; each has some of the readers, and reads and tokenizes for these alone. A run continues where it was stopped.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice, pairwise, takewhile, tee
from math import gcd
from operator import attrgetter
from typing import Any

import fsspec
import numpy as np
import torch
from accelerate.utils import gather_object
from torch import Tensor
from torch.utils.data import DataLoader, default_collate, get_worker_info

from tfm_zoo.training.batches import Division
from tfm_zoo.training.streaming.texts import CHARACTERS, TextSource

MAX_READERS = 64  # if all processes together have more workers, some texts are read twice
MIN_DOCUMENTS = 16  # of a chunk, which bounds the number of readers


@dataclass(frozen=True)
class Position:
    """Where a text stands in its part of the source. That of a reader's chunk is that of its first text."""

    epoch: int = 0  # how many passes come before it
    chunk: int = 0  # how many chunks of the reader come before it in this pass
    shard: int = 0  # how many shards of the part come before its own in this pass
    before: int = 0  # how many texts these shards have
    text: int = 0  # how many texts of the part come before it in this pass
    examples: int = 0  # how many examples the reader gave before the chunk, in all passes


def position_of(values: dict[str, Any]) -> Position:
    """A position, as it was written. One of version 0.2 has a state of its shard: its pass is read again."""
    names = ("epoch", "chunk", "text", "examples") if "state" in values else values
    return Position(**{name: values[name] for name in names})


Found = tuple[Position, str]  # a text, and where it was found
order_in_part = attrgetter("epoch", "text")


@dataclass(eq=False)
class Stream:
    """Examples made from the texts of a source, chunk by chunk and pass after pass, without an end."""

    source: TextSource
    #: Makes the texts of a chunk into examples, with random numbers from the generator alone. A text is a document, or
    #: a part of a document that is longer than a chunk; empty ones are left out.
    make_examples: Callable[[list[str], np.random.Generator], Sequence[Any]]
    seed: int
    chunk_size: int = 2000  # documents of all readers' chunks together; a chunk also ends at `CHARACTERS`
    size: int | None = None  # examples of a pass, if they are known
    readers: int = 1  # a power of two

    def with_readers(self) -> "Stream":
        """This stream with as many readers as it has enough texts for, at most `MAX_READERS`."""
        most = max(1, min(MAX_READERS, self.chunk_size // MIN_DOCUMENTS))
        documents, characters = replace(self, readers=most).limits
        texts = size = 0
        for position, text in islice(self.part(), most * documents):
            if position.epoch or size >= most * characters:
                break
            texts, size = texts + 1, size + len(text)
        enough = min(most, texts // 2, max(texts // documents, size // characters))
        return replace(self, readers=2 ** max(0, enough.bit_length() - 1))

    @property
    def limits(self) -> tuple[int, int]:
        """How many documents, and how many characters, a reader's chunk has."""
        return -(-self.chunk_size // self.readers), min(CHARACTERS, 8 * CHARACTERS // self.readers)

    def part(self, start: Position = Position(), part: int = 0, parts: int = 1) -> Iterator[Found]:
        """The texts of a part of the source from a position on, pass after pass, each with its shards in another order.
        Blank texts are left out. A text that is as long as two chunks or more is read in pieces that fill one."""
        passes_without_text = 0
        while passes_without_text < 100:  # a part may have no text in a pass, but not for ever
            passes_without_text += 1
            number, shards = start.before, self.source.shards([self.seed, start.epoch], start.shard, part, parts)
            for index, shard in enumerate(shards, start.shard):
                before = number
                for text in self.source.texts(self.source.lines(shard)):
                    begins = range(0, max(1, len(text) - CHARACTERS + 1), CHARACTERS)
                    for piece in filter(str.strip, (text[i:j] for i, j in pairwise([*begins, len(text)]))):
                        if number >= start.text:
                            passes_without_text = 0
                            yield Position(start.epoch, 0, index, before, number), piece
                        number += 1
            start = Position(start.epoch + 1)
        raise ValueError("there is no text to train on, beside that to validate on")

    def share(self, starts: Mapping[int, Position], part: int, parts: int) -> Iterator[tuple[int, Found]]:
        """The texts of a part for the readers that begin here, which take its texts in turn, each with its reader."""
        for position, text in self.part(min(starts.values(), key=order_in_part), part, parts):
            reader = (position.text + position.epoch) % (self.readers // parts) * parts + part
            if reader in starts and order_in_part(position) >= order_in_part(starts[reader]):
                yield reader, (position, text)

    def texts(self, starts: Mapping[int, Position]) -> dict[int, Iterator[Found]]:
        """The texts of these readers, for each from its start on. If shards are few, several readers share a part. It
        is read once for all of them: what one has read and another has not is kept in memory."""

        def texts_of(reader: int, shared: Iterator[tuple[int, Found]]) -> Iterator[Found]:
            return (found for owner, found in shared if owner == reader)

        parts, texts = self.source.parts_for(self.readers), {}
        for part in {reader % parts for reader in starts}:
            mine = {reader: start for reader, start in starts.items() if reader % parts == part}
            copies = tee(self.share(mine, part, parts), len(mine))
            texts |= {reader: texts_of(reader, shared) for reader, shared in zip(mine, copies, strict=True)}
        return texts

    def chunks(self, reader: int, start: Position, texts: Iterator[Found]) -> Iterator[tuple[Position, list[str]]]:
        """The reader's texts from a position on in chunks, each with the position of its first text."""
        position, chunk, size = start, [], 0
        for place, text in texts:
            if chunk and place.epoch > position.epoch:  # a pass ends with a chunk
                yield position, chunk
                chunk = []
            if not chunk:
                position = replace(place, chunk=position.chunk if place.epoch == position.epoch else 0)
                # The first chunks have different lengths, so that not all readers come to new ones at the same time.
                share = (reader + 1) / self.readers if position.epoch == position.chunk == 0 else 1
                documents, characters = (max(2, int(share * limit)) for limit in self.limits)  # a pair needs two
                size = 0
            chunk.append(text)
            size += len(text)
            if len(chunk) >= documents or size >= CHARACTERS or (len(chunk) > 1 and size >= characters):
                yield position, chunk
                position, chunk = replace(position, chunk=position.chunk + 1), []

    def examples(self, reader: int, position: Position, chunk: list[str]) -> list[Any]:
        """The examples of a chunk, in random order."""
        rng = np.random.default_rng([self.seed, position.epoch, position.chunk, reader])
        examples = self.make_examples(chunk, rng)
        return [examples[index] for index in rng.permutation(len(examples))]

    def read(self, reader: int, start: Position, used: int, texts: Iterator[Found]) -> Iterator[tuple[Any, Position]]:
        """The reader's examples after the first `used` ones, without an end, each with the position of its chunk."""
        given, last = start.examples, start.epoch  # the last pass with an example
        for position, chunk in self.chunks(reader, start, texts):
            if position.epoch > last + 100:
                raise ValueError(f"a hundred passes over the texts, up to number {position.epoch}, gave no example")
            if examples := self.examples(reader, position, chunk):
                position, last = replace(position, examples=given), position.epoch
            yield from ((example, position) for example in examples[max(0, used - given) :])
            given += len(examples)

    def first_pass(self, readers: Iterable[int] | None = None) -> Iterator[Any]:
        """The examples that these readers, by default all, make of their texts in the first pass."""
        for reader in range(self.readers) if readers is None else readers:
            chunks = self.chunks(reader, Position(), self.texts({reader: Position()})[reader])
            for position, chunk in takewhile(lambda chunk: chunk[0].epoch == 0, chunks):
                yield from self.examples(reader, position, chunk)


def default_workers() -> int:
    """How many reading workers each training process of this machine can have on the cores it may use, 4 at most."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(0, min(4, cores // int(os.environ.get("LOCAL_WORLD_SIZE", 1)) - 1))


class StreamBatches(torch.utils.data.IterableDataset):
    """This process's micro-batches of a stream, all of the same size, and the position that they have reached.

    It is the data set of a `DataLoader` that makes no batches; the loader's workers, if any, divide this process's
    readers. Example `i` of a run comes from reader `i` modulo the number of readers, and goes to process `i` modulo the
    number of processes. If nobody knows how many examples a pass has, `max_steps` count as an epoch.
    """

    def __init__(self, stream: Stream, division: Division, collate: Callable | None = None, max_steps: int = 0):
        self.stream, self.size, self.division, self.collate = stream, stream.size, division, collate or default_collate
        self.steps_per_epoch = -(-self.size // division.global_batch_size) if self.size else max_steps
        # With fewer readers than processes, or a number of these that is not a power of two, several read the same.
        step = gcd(division.num_processes, stream.readers)
        self.readers = range(division.process_index % step, stream.readers, step)
        self.used, self.starts = 0, dict.fromkeys(self.readers, Position())  # `used`: by all processes
        self.first_step = 0  # the step of the epoch with which the next iteration begins

    def set_position(self, epoch: int, step: int = 0) -> None:
        """Let the next iteration end with the epoch, after `step` steps of it. It begins where the last ended."""
        self.first_step = step

    def state_dict(self) -> dict[str, Any]:
        """The positions of all processes. All of them call it."""
        starts = [[reader, vars(start)] for reader, start in self.starts.items()]
        return {"used": self.used, "readers": self.stream.readers, "starts": gather_object(starts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if (was := state.get("readers", "other")) != self.stream.readers:
            counts = f"the checkpoint's stream had {was} readers, and this one has {self.stream.readers}"
            raise ValueError(f"resume_from_checkpoint: {counts}: continue with the texts that it began with")
        starts = {reader: position_of(start) for reader, start, *_ in state["starts"]}
        self.used, self.starts = state["used"], {reader: starts[reader] for reader in self.readers}

    def __iter__(self) -> Iterator[tuple[dict[int, Any], dict[int, Position]]]:
        """For each optimiser step this worker's examples, by their numbers in the run, and the starts that changed."""
        worker = get_worker_info()
        if worker:
            fsspec.asyn.reset_lock()  # inherited from the parent process, perhaps locked
        division, readers = self.division, self.stream.readers
        mine = self.readers[worker.id :: worker.num_workers] if worker else self.readers
        starts = {reader: self.starts[reader] for reader in mine}
        reading = {
            reader: self.stream.read(reader, starts[reader], len(range(reader, self.used, readers)), texts)
            for reader, texts in self.stream.texts(starts).items()
        }
        for first in count(self.used, division.global_batch_size):
            examples, changed = {}, {}
            for index in range(first, first + division.global_batch_size):
                reader = index % readers
                if reader in reading:
                    example, start = next(reading[reader])
                    if start is not starts[reader]:
                        starts[reader] = changed[reader] = start
                    if index % division.num_processes == division.process_index:
                        examples[index] = example
            yield examples, changed

    def steps(self, loader: DataLoader) -> Iterator[list[dict[str, Tensor]]]:
        """For each step in the rest of the epoch its micro-batches, joined from what the loader's workers have read."""
        parts, size = iter(loader), self.division.per_device
        for _ in range(self.steps_per_epoch - self.first_step):
            examples: dict[int, Any] = {}
            for part, changed in islice(parts, max(1, loader.num_workers)):
                examples |= part
                self.starts |= changed
            self.used += self.division.global_batch_size
            mine = [examples[index] for index in sorted(examples)]
            batches = (self.collate(mine[i : i + size]) for i in range(0, len(mine), size))
            # The batch is pinned here: a loader pins tensors alone, and the workers send arrays.
            yield [{k: v.pin_memory() for k, v in batch.items()} if loader.pin_memory else batch for batch in batches]

    def examples_in(self, step: int) -> int:
        return self.division.global_batch_size
