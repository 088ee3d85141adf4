"""Examples from texts that need not fit into memory: read in blocks, pass after pass, from any place on.

A block is a few thousand documents, or as many as have 2,000,000 characters, so that memory is bounded; one that is so
long by itself gives no examples that take two documents. What becomes of a block, and in what order, follows from the
seed, the pass and its number alone, and batches are cut from the row of all examples: so that a run goes on exactly
where it was, and any number of processes see the same batches. To that end each process reads and tokenizes all of the
stream, and trains on its share. Data sets in memory take the same way.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice, takewhile
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from tfm_zoo.training.text_sources import CHARACTERS, Place, Reading, TextSource


@dataclass(frozen=True)
class Block:
    """Texts that are read, mixed and made into examples together."""

    place: Place
    texts: list[str]


class Stream(torch.utils.data.Dataset):
    """Examples made from the texts of a source, block by block and pass after pass, without an end.

    It is indexed by a block, and gives the block's place and examples.

    Args:
        make_examples: what becomes of the texts of a block, which are the documents, or where one is longer than a
            block, a part of it; draws from the generator alone. Empty texts are left out.
        block_size: documents of a block, which `CHARACTERS` of them end too.
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
                    place = reading.place(place.block + 1)
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
