"""Batches that depend on the seed and the global batch size alone, not on how many processes share them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Sampler
from transformers.trainer_pt_utils import LengthGroupedSampler


@dataclass(frozen=True)
class Division:
    """How a global batch is divided: into `accumulation_steps` forward passes, and each of these among the processes,
    `per_device` examples or tokens for each."""

    per_device: int
    accumulation_steps: int = 1
    num_processes: int = 1
    process_index: int = 0

    @property
    def global_batch_size(self) -> int:
        return self.per_device * self.num_processes * self.accumulation_steps


class GlobalBatchSampler(Sampler[list[int]]):
    """Index lists of this process's micro-batches, for `DataLoader(batch_sampler=...)`.

    An optimiser step takes a global batch: as many examples as `division` says (the last of an epoch may be
    smaller). The seed and the epoch's number decide their order. So training can start at any step of any epoch
    (`set_position`), and sees the same examples at a step however a global batch is divided.

    All processes get the same number of micro-batches, none of them empty. A process may compute an example more
    than another, and a batch with fewer examples than processes goes to each of them whole; `train_step` therefore
    divides by the items. With `lengths`, the tokens of each example, a batch holds examples of similar length.
    """

    def __init__(self, size: int, division: Division, seed: int = 0, lengths: Sequence[int] | None = None):
        self.size, self.division, self.seed, self.lengths = size, division, seed, lengths
        self.set_position(epoch=0)

    @property
    def steps_per_epoch(self) -> int:
        """The optimiser steps of an epoch, as many in each."""
        return len(self.global_batches)

    def set_position(self, epoch: int, step: int = 0) -> None:
        """Let the next iteration begin at optimiser step `step` of epoch `epoch`."""
        self.first_step = step
        self.global_batches = self.draw_global_batches(torch.Generator().manual_seed(1009 * self.seed + epoch))

    def draw_global_batches(self, generator: torch.Generator) -> Sequence[Tensor]:
        """The global batches of an epoch, in order."""
        batch_size = self.division.global_batch_size
        if self.lengths is None:
            return torch.randperm(self.size, generator=generator).split(batch_size)
        grouped = LengthGroupedSampler(batch_size, lengths=self.lengths, generator=generator)
        return torch.tensor(list(grouped)).split(batch_size)

    def capacity(self, batch: Tensor) -> int:
        """How many examples of a global batch a device takes in one forward pass. (A subclass counts their tokens.)"""
        return self.division.per_device

    def __iter__(self) -> Iterator[list[int]]:
        for global_batch in self.global_batches[self.first_step :]:
            yield from self.micro_batches(global_batch)

    def steps(self, loader: Iterable[Any]) -> Iterator[list[Any]]:
        """Group the batches of `loader`, which reads from this sampler, by optimiser step."""
        loaded = iter(loader)
        for global_batch in self.global_batches[self.first_step :]:
            yield list(islice(loaded, len(self.micro_batches(global_batch))))

    def examples_in(self, step: int) -> int:
        """Number of examples in the global batch of a step of the epoch."""
        return len(self.global_batches[step])

    def micro_batches(self, global_batch: Tensor) -> list[list[int]]:
        """This process's share of a global batch, in as few micro-batches as fit.

        Ten examples, for two processes that take two at a time, are three parts: [0 1 2 3], [4 5 6] and [7 8 9]. The
        first process gets [0 2], [4 6] and [7 9], the second [1 3], [5] and [8]. A part may be too large by one, so
        that no share is empty: three examples, for two processes that take one at a time, are one part, [0 2] and [1].
        """
        processes, first, size = self.division.num_processes, self.division.process_index, len(global_batch)
        sharing = processes if size >= processes else 1
        count = min(-(-size // (self.capacity(global_batch) * sharing)), size // sharing)
        return [part[first % sharing :: sharing].tolist() for part in global_batch.tensor_split(count)]
