"""Examples made from texts while training reads them, in memory or not, from any place on.

A stream reads its texts in chunks: a few thousand documents, or as many as have 2,000,000 characters, so that memory is
bounded. (A document as long as that is a chunk alone, and gives no examples of two documents.) The seed, the pass and
the chunk's number decide what examples a chunk gives and in which order, and batches are cut from the sequence of all
examples. So a run continues exactly where it was stopped, and any number of processes see the same batches; for that,
each process reads and tokenizes the whole stream, and trains on its share of each batch.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice, takewhile
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from tfm_zoo.training.batches import Division
from tfm_zoo.training.text_sources import CHARACTERS, Place, Reader, TextSource


class Chunk(NamedTuple):
    """Texts that are read, mixed and made into examples together."""

    place: Place
    texts: list[str]


@dataclass(eq=False)
class Stream(torch.utils.data.Dataset):
    """Examples made from the texts of a source, chunk by chunk and pass after pass, without an end."""

    source: TextSource
    #: Makes the texts of a chunk into examples, with no other random numbers than the generator's. A text is a
    #: document, or a part of a document that is longer than a chunk; empty ones are left out.
    make_examples: Callable[[list[str], np.random.Generator], list[Any]]
    seed: int
    chunk_size: int = 2000  # documents of a chunk, which ends at `CHARACTERS`, too
    size: int | None = None  # examples of a pass, if they are known

    def chunks(self, place: Place) -> Iterator[Chunk]:
        """The chunks from a place on."""
        while True:
            reader = Reader(self.source, self.seed, place)
            texts: list[str] = []
            size = 0
            for text in reader:
                if text.strip():
                    texts.append(text)
                    size += len(text)
                if len(texts) == self.chunk_size or size >= CHARACTERS:
                    yield Chunk(place, texts)
                    place = reader.place(place.chunk + 1)
                    texts, size = [], 0
            if texts:
                yield Chunk(place, texts)
            elif place.chunk == 0:
                raise ValueError("there is no text to train on")
            place = Place(place.epoch + 1)

    def __getitem__(self, chunk: Chunk) -> tuple[Place, list[Any]]:
        """The place of a chunk, and its examples."""
        rng = np.random.default_rng([self.seed, chunk.place.epoch, chunk.place.chunk])
        examples = self.make_examples(chunk.texts, rng)
        return chunk.place, [examples[index] for index in rng.permutation(len(examples))]

    def first_pass(self) -> Iterator[Any]:
        """The examples of the first pass."""
        for chunk in takewhile(lambda chunk: chunk.place.epoch == 0, self.chunks(Place())):
            yield from self[chunk][1]


class StreamBatches(Division):
    """This process's micro-batches of a stream, all of the same size, and the place that they have reached.

    It does for streams what [`GlobalBatchSampler`] does for examples with an index. As the `sampler` of a loader it
    gives chunks of texts; the loader's processes make them into examples, which `collate` (by default torch's) makes
    into batches. If nobody knows how many examples a pass has, `max_steps` count as an epoch.
    """

    def __init__(
        self, stream: Stream, per_device: int, collate: Callable | None = None, max_steps: int = 0, **division: int
    ):
        super().__init__(per_device, **division)
        self.stream, self.size, self.collate = stream, stream.size, collate or default_collate
        self.steps_per_epoch = -(-self.size // self.global_batch_size) if self.size else max_steps
        if not self.steps_per_epoch:
            raise ValueError("a stream of unknown length needs max_train_steps")
        self.place, self.used = Place(), 0  # a chunk, and how many of its examples have been used
        self.first_step = 0  # of the rest of the epoch

    def __len__(self) -> int:
        return self.steps_per_epoch

    def set_position(self, epoch: int, step: int = 0) -> None:
        """Let the next iteration, which begins at the place that the stream has reached, end with the epoch."""
        self.first_step = step

    def state_dict(self) -> dict[str, Any]:
        return {"place": asdict(self.place), "used": self.used}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        place = {"chunk" if name == "block" else name: value for name, value in state["place"].items()}  # as in 0.1
        self.place, self.used = Place(**place), state["used"]

    def __iter__(self) -> Iterator[Chunk]:
        return self.stream.chunks(self.place)

    def steps(self, loader: Iterable[tuple[Place, list[Any]]]) -> Iterator[list[dict[str, Tensor]]]:
        """The rest of the epoch, by optimiser step, from the chunks that the loader reads."""
        for batch in islice(self._global_batches(loader), len(self) - self.first_step):
            mine = batch[self.process_index :: self.num_processes]
            size = len(mine) // self.accumulation_steps
            yield [self.collate(mine[start : start + size]) for start in range(0, len(mine), size)]

    def _global_batches(self, loader: Iterable[tuple[Place, list[Any]]]) -> Iterator[list[Any]]:
        """The examples of all processes, by optimiser step."""
        waiting: list[Any] = []
        used = self.used
        for place, examples in loader:
            waiting += examples[used:]
            used = 0
            while len(waiting) >= self.global_batch_size:
                batch, waiting = waiting[: self.global_batch_size], waiting[self.global_batch_size :]
                self.place, self.used = place, len(examples) - len(waiting)
                yield batch

    def examples(self, step: int) -> int:
        return self.global_batch_size
