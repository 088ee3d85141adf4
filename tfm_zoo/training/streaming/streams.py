"""Examples made from texts while training reads them. The texts may be larger than memory.

A stream is dealt out to a fixed number of readers, each of which reads texts of its own, in chunks. The seed, the
reader, the pass and the chunk's number decide what examples a chunk gives and in which order. The examples of a run
come from the readers in turn, and batches are cut from their sequence. So any number of processes, and of workers in
each, see the same batches; each has some of the readers, and reads and tokenizes for these alone. A run continues
exactly where it was stopped, on any number of processes.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice, takewhile
from math import gcd
from typing import Any

import fsspec
import numpy as np
import torch
from accelerate.utils import gather_object
from torch import Tensor
from torch.utils.data import DataLoader, default_collate, get_worker_info

from tfm_zoo.training.batches import Division
from tfm_zoo.training.data import counted
from tfm_zoo.training.streaming.texts import CHARACTERS, Place, TextSource, deal, read_lane

logger = logging.getLogger(__name__)

READERS = 64  # the most readers; if all processes together have more workers, some texts are read twice
LEAST = 16  # the fewest documents in a chunk, which bounds the number of readers


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

    def dealt(self) -> "Stream":
        """This stream with as many readers as it has enough texts for, at most `READERS`."""
        most = max(1, min(READERS, self.chunk_size // LEAST))
        documents, characters = replace(self, readers=most).limits
        texts = size = 0
        for place, text in read_lane(self.source, self.seed, Place()):
            if place.epoch or texts >= most * documents or size >= most * characters:
                break
            texts, size = texts + 1, size + len(text)
        enough = min(most, texts // 2, max(texts // documents, size // characters))
        return replace(self, readers=2 ** max(0, enough.bit_length() - 1))

    @property
    def limits(self) -> tuple[int, int]:
        """How many documents, and how many characters, a reader's chunk has."""
        return -(-self.chunk_size // self.readers), min(CHARACTERS, 8 * CHARACTERS // self.readers)

    def texts(self, starts: Mapping[int, Place]) -> dict[int, Iterator[tuple[Place, str]]]:
        """The texts of each of these readers, and their places, from the reader's start on."""
        lanes = self.source.most_lanes(self.readers)
        texts = {}
        for lane in {reader % lanes for reader in starts}:  # readers share a lane where shards are few
            places = {reader // lanes: place for reader, place in starts.items() if reader % lanes == lane}
            dealt = deal(self.source, self.seed, places, lane, lanes, self.readers // lanes)
            texts |= {number * lanes + lane: mine for number, mine in dealt.items()}
        return texts

    def chunks(
        self, start: Place, reader: int = 0, texts: Iterator[tuple[Place, str]] | None = None
    ) -> Iterator[tuple[Place, list[str]]]:
        """The chunks of a reader from a place on: the place of the first text, and texts that make examples together.

        `texts` are the reader's from there on, if they have been opened together with those of other readers.
        """
        place, chunk, size = start, [], 0
        for where, text in texts or self.texts({reader: start})[reader]:
            if chunk and where.epoch > place.epoch:  # a pass ends with a chunk
                yield place, chunk
                chunk = []
            if not chunk:
                same_pass = where.epoch == place.epoch
                place, size = replace(where, chunk=place.chunk if same_pass else 0), 0
                # The first chunks have different lengths, so that not all readers come to new ones at the same time.
                share = (reader + 1) / self.readers if place.epoch == place.chunk == 0 else 1
                documents, characters = (max(2, int(share * limit)) for limit in self.limits)  # a pair needs two
            chunk.append(text)
            size += len(text)
            if len(chunk) >= documents or size >= CHARACTERS or (len(chunk) > 1 and size >= characters):
                yield place, chunk
                place, chunk = replace(place, chunk=place.chunk + 1), []

    def examples(self, reader: int, place: Place, chunk: list[str]) -> list[Any]:
        """The examples of a chunk, in random order."""
        rng = np.random.default_rng([self.seed, place.epoch, place.chunk, reader])
        examples = self.make_examples(chunk, rng)
        return [examples[index] for index in rng.permutation(len(examples))]

    def read(
        self, reader: int, start: Place, used: int, texts: Iterator[tuple[Place, str]]
    ) -> Iterator[tuple[Any, Place]]:
        """The examples of a reader after the first `used` ones, without an end; each with the place of its chunk."""
        given, last = start.examples, start.epoch  # the last pass with an example
        for place, chunk in self.chunks(start, reader, texts):
            if place.epoch > last + 100:
                raise ValueError(f"a hundred passes over the texts, up to number {place.epoch}, gave no example")
            examples = self.examples(reader, place, chunk)
            if examples:
                place, last = replace(place, examples=given), place.epoch
            yield from ((example, place) for example in examples[max(0, used - given) :])
            given += len(examples)

    def first_pass(self, readers: Iterable[int] | None = None) -> Iterator[Any]:
        """The examples that these readers, by default all, make of their texts in the first pass."""
        for reader in range(self.readers) if readers is None else readers:
            for place, chunk in takewhile(lambda found: found[0].epoch == 0, self.chunks(Place(), reader)):
                yield from self.examples(reader, place, chunk)


def default_workers() -> int:
    """How many reading workers each training process of this machine can have on the cores it may use, 4 at most."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(0, min(4, cores // int(os.environ.get("LOCAL_WORLD_SIZE", 1)) - 1))


class StreamBatches(Division, torch.utils.data.IterableDataset):
    """This process's micro-batches of a stream, all of the same size, and the place that they have reached.

    It does for streams what [`GlobalBatchSampler`] does for examples with an index. It is the data set of a
    `DataLoader` that makes no batches; the loader's workers, if any, divide this process's readers. Example `i` of a
    run comes from reader `i` modulo the number of readers, and goes to process `i` modulo the number of processes.

    If nobody knows how many examples a pass has, `max_steps` count as an epoch.
    """

    def __init__(
        self, stream: Stream, per_device: int, collate: Callable | None = None, max_steps: int = 0, **division: int
    ):
        super().__init__(per_device, **division)
        self.stream, self.size, self.collate = stream, stream.size, collate or default_collate
        self.steps_per_epoch = -(-self.size // self.global_batch_size) if self.size else max_steps
        if not self.steps_per_epoch:
            raise ValueError("a stream of unknown length needs max_train_steps")
        step = gcd(self.num_processes, stream.readers)
        if step < self.num_processes:  # fewer readers than processes, or a number of these that is no power of two
            logger.warning(
                f"The texts have {counted(stream.readers, 'reader')} for {self.num_processes} processes: each text is"
                f" read and tokenized by {self.num_processes // step} of them"
            )
        self.readers = range(self.process_index % step, stream.readers, step)
        self.used, self.starts = 0, dict.fromkeys(self.readers, Place())  # `used`: by all processes
        self.first_step = 0  # the step of the epoch with which the next iteration begins

    def __len__(self) -> int:
        return self.steps_per_epoch

    def set_position(self, epoch: int, step: int = 0) -> None:
        """Let the next iteration end with the epoch, of which `step` steps are done. It begins where the last ended."""
        self.first_step = step

    def step_after(self, steps: int, global_batch_size: int) -> int:
        return super().step_after(steps, global_batch_size) if self.size else steps

    def state_dict(self) -> dict[str, Any]:
        """The place of all processes. All of them call it."""
        starts = [[reader, vars(place), place.examples] for reader, place in self.starts.items()]
        return {"used": self.used, "readers": self.stream.readers, "starts": gather_object(starts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state.get("readers") != self.stream.readers:
            earlier = f"{state['readers']} readers" if "readers" in state else "one reader, as in version 0.1"
            raise ValueError(
                f"resume_from_checkpoint: the checkpoint's stream had {earlier}, and this one has "
                f"{self.stream.readers}; continue with the texts and the version of tfm_zoo that the run began with"
            )
        starts = {reader: Place(**place | {"examples": examples}) for reader, place, examples in state["starts"]}
        self.used, self.starts = state["used"], {reader: starts[reader] for reader in self.readers}

    def __iter__(self) -> Iterator[tuple[Any, dict[int, Place]]]:
        """For each optimiser step this worker's examples in order, and the starts that have changed."""
        worker = get_worker_info()
        if worker:
            fsspec.asyn.reset_lock()  # inherited from the parent process, perhaps locked
        readers = self.stream.readers
        mine = self.readers[worker.id :: worker.num_workers] if worker else self.readers
        starts = {reader: self.starts[reader] for reader in mine}
        reading = {
            reader: self.stream.read(reader, starts[reader], len(range(reader, self.used, readers)), texts)
            for reader, texts in self.stream.texts(starts).items()
        }
        for first in count(self.used, self.global_batch_size):
            examples, changed = [], {}
            for index in range(first, first + self.global_batch_size):
                reader = index % readers
                if reader in reading:
                    example, start = next(reading[reader])
                    if start is not starts[reader]:
                        starts[reader] = changed[reader] = start
                    if index % self.num_processes == self.process_index:
                        examples.append(example)
            yield examples, changed

    def steps(self, loader: DataLoader) -> Iterator[list[dict[str, Tensor]]]:
        """For each step in the rest of the epoch its micro-batches, joined from what the loader's workers have read."""
        all_parts = iter(loader)
        workers = max(1, loader.num_workers)
        worker_of = {reader: index % workers for index, reader in enumerate(self.readers)}
        for _ in range(len(self) - self.first_step):
            parts, changed = zip(*islice(all_parts, workers), strict=True)
            examples = [iter(part) for part in parts]
            first = self.used + (self.process_index - self.used) % self.num_processes
            indices = range(first, self.used + self.global_batch_size, self.num_processes)
            mine = [next(examples[worker_of[index % self.stream.readers]]) for index in indices]
            self.used += self.global_batch_size
            for starts in changed:
                self.starts |= starts
            batches = (self.collate(mine[i : i + self.per_device]) for i in range(0, len(mine), self.per_device))
            # The batch is pinned here: a loader pins tensors alone, and the workers send arrays.
            yield [{k: v.pin_memory() for k, v in batch.items()} if loader.pin_memory else batch for batch in batches]

    def examples(self, step: int) -> int:
        return self.global_batch_size
