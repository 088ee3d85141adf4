"""Batches that depend on the seed and the global batch size alone, not on how many processes share them."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Sampler
from transformers.trainer_pt_utils import LengthGroupedSampler


class Division:
    """How a global batch is divided: among processes, then into forward passes of `per_device` examples or tokens."""

    def __init__(self, per_device: int, accumulation_steps: int = 1, num_processes: int = 1, process_index: int = 0):
        self.per_device, self.num_processes, self.process_index = per_device, num_processes, process_index
        self.global_batch_size = per_device * num_processes * accumulation_steps
        #: whether a run can continue with global batches of another size: the order of examples must not depend on it
        self.may_change = True

    def step_after(self, steps: int, global_batch_size: int) -> int:
        """The step at which to continue after `steps` steps of another global batch size; no example is skipped."""
        return steps * global_batch_size // self.global_batch_size


class GlobalBatchSampler(Division, Sampler[list[int]]):
    """Index lists of this process's micro-batches, for `DataLoader(batch_sampler=...)`.

    An optimiser step takes a global batch: `per_device * num_processes * accumulation_steps` examples (the last of an
    epoch may be smaller). The seed and the epoch's number decide their order. So training can start at any step of any
    epoch (`set_position`), and sees the same examples at a step however a global batch is divided.

    All processes get the same number of micro-batches, none of them empty. So one may compute an example more than
    another, and a batch with fewer examples than processes goes to each of them whole: weight losses by the number of
    examples that were computed. With `lengths`, the tokens of each example, a batch holds examples of similar length.
    """

    def __init__(
        self, size: int, per_device: int, *, seed: int = 0, lengths: Sequence[int] | None = None, **division: int
    ):
        super().__init__(per_device, **division)
        self.size, self.seed, self.lengths = size, seed, lengths
        self.may_change = lengths is None
        self.set_position(epoch=0)

    def __len__(self) -> int:
        """Optimiser steps in an epoch, the same in each."""
        return len(self.global_batches)

    def set_position(self, epoch: int, step: int = 0) -> None:
        """Let the next iteration begin at optimiser step `step` of epoch `epoch`."""
        self.first_step = step
        self.global_batches = self.make_batches(torch.Generator().manual_seed(1009 * self.seed + epoch))

    def make_batches(self, generator: torch.Generator) -> Sequence[Tensor]:
        """The global batches of an epoch, in order."""
        if self.lengths is None:
            return torch.randperm(self.size, generator=generator).split(self.global_batch_size)
        grouped = LengthGroupedSampler(self.global_batch_size, lengths=self.lengths, generator=generator)
        return torch.tensor(list(grouped)).split(self.global_batch_size)

    def capacity(self, batch: Tensor) -> int:
        """How many examples of a global batch a device takes in one forward pass."""
        return self.per_device

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self.global_batches[self.first_step :]:
            yield from self.micro_batches(batch)

    def steps(self, loader: Iterable[Any]) -> Iterator[list[Any]]:
        """Group the batches of `loader`, which reads from this sampler, by optimiser step."""
        batches = iter(loader)
        for batch in self.global_batches[self.first_step :]:
            yield list(islice(batches, len(self.micro_batches(batch))))

    def examples(self, step: int) -> int:
        """Number of examples in the global batch of a step of the epoch."""
        return len(self.global_batches[step])

    def micro_batches(self, batch: Tensor) -> list[list[int]]:
        """This process's share of a global batch, in as few micro-batches as fit the device. Rather than leave one
        empty, it puts one example more into another."""
        sharing = self.num_processes if len(batch) >= self.num_processes else 1
        count = min(-(-len(batch) // (self.capacity(batch) * sharing)), len(batch) // sharing)
        index = self.process_index if sharing > 1 else 0
        return [part[index::sharing].tolist() for part in batch.tensor_split(count)]


class TokenBatchSampler(GlobalBatchSampler):
    """A [`GlobalBatchSampler`] that limits batches by tokens, padding included, and not by examples.

    A global batch holds at most `per_device * num_processes * accumulation_steps` tokens when each of its columns
    (source and target) is padded to its longest. Examples of similar `lengths`, `(examples, columns)`, are together.
    From epoch to epoch examples of equal lengths change places, and batches change their order, but not their sizes.
    """

    #: larger batches hold a multiple of this many examples, which most numbers of processes share evenly
    MULTIPLE = 8

    def __init__(self, lengths: Sequence[Sequence[int]], per_device: int, **division: int):
        self.columns, self.sizes = torch.as_tensor(lengths), None
        longest = int(self.columns.sum(dim=1).max())
        if longest > per_device:
            raise ValueError(f"per_device_train_batch_tokens {per_device}: too few for an example of {longest} tokens")
        super().__init__(len(self.columns), per_device, lengths=lengths, **division)

    def make_batches(self, generator: torch.Generator) -> Sequence[Tensor]:
        order = torch.randperm(self.size, generator=generator)
        # A stable sort by one column after the other sorts by the last, and where that is equal by those before it.
        for column in self.columns.T:
            order = order[column[order].argsort(stable=True)]
        self.sizes = self.sizes or [*self._sizes(self.columns[order])]
        batches = order.split(self.sizes)
        return [batches[index] for index in torch.randperm(len(batches), generator=generator)]

    def capacity(self, batch: Tensor) -> int:
        # At least one: a batch's longest source and longest target may be too long together, but no example is.
        return max(1, self.per_device // int(self.columns[batch].amax(dim=0).sum()))

    def _sizes(self, lengths: Tensor) -> Iterator[int]:
        """How many examples, sorted by length, each batch takes: as many as fit."""
        while len(lengths):
            padded = lengths[: self.global_batch_size].cummax(dim=0).values.sum(dim=1)
            size = int((padded * torch.arange(1, len(padded) + 1) <= self.global_batch_size).sum())
            if self.MULTIPLE < size < len(lengths):
                size -= size % self.MULTIPLE
            yield size
            lengths = lengths[size:]
