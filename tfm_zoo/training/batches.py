"""Batches that depend on the seed and the global batch size alone, not on how many processes share the work."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Sampler
from transformers.trainer_pt_utils import LengthGroupedSampler


class GlobalBatchSampler(Sampler[list[int]]):
    """Index lists of this process's micro-batches, for `DataLoader(batch_sampler=...)`.

    One optimiser step consumes one global batch: `per_device_batch_size * num_processes * accumulation_steps`
    examples (the last of an epoch may be smaller). The order of an epoch is a function of `seed` and the epoch's
    number, so that training can start again at any step of any epoch (`set_position`), and so that every split of
    the same global batch over processes and accumulation steps sees the same examples at the same step.

    Every process gets the same number of micro-batches, none of them empty. Shares can differ by one example, and
    a global batch of fewer examples than processes is given to each of them whole: weigh losses by the number
    of examples that were computed.

    Args:
        size: number of examples in the data set.
        lengths: number of tokens of each example; if given, global batches hold examples of similar length.
    """

    def __init__(
        self,
        size: int,
        per_device_batch_size: int,
        *,
        accumulation_steps: int = 1,
        num_processes: int = 1,
        process_index: int = 0,
        seed: int = 0,
        lengths: Sequence[int] | None = None,
    ):
        self.size = size
        self.per_device_batch_size = per_device_batch_size
        self.global_batch_size = per_device_batch_size * num_processes * accumulation_steps
        self.num_processes = num_processes
        self.process_index = process_index
        self.seed = seed
        self.lengths = lengths
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
            order = torch.randperm(self.size, generator=generator)
        else:
            grouped = LengthGroupedSampler(self.global_batch_size, lengths=self.lengths, generator=generator)
            order = torch.tensor(list(grouped))
        return order.split(self.global_batch_size)

    def fitting(self, batch: Tensor) -> int:
        """How many examples of a global batch fit a device."""
        return self.per_device_batch_size

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self.global_batches[self.first_step :]:
            for part in batch.tensor_split(self._micro_batches(batch)):
                whole = len(part) < self.num_processes
                yield part.tolist() if whole else part[self.process_index :: self.num_processes].tolist()

    def steps(self, loader: Iterable[Any]) -> Iterator[list[Any]]:
        """Group the batches of `loader`, which reads from this sampler, by optimiser step."""
        batches = iter(loader)
        for batch in self.global_batches[self.first_step :]:
            yield list(islice(batches, self._micro_batches(batch)))

    def examples(self, step: int) -> int:
        """Number of examples in the global batch of a step of the epoch."""
        return len(self.global_batches[step])

    def _micro_batches(self, batch: Tensor) -> int:
        # As few as memory allows, but never so many that a process would be left without an example.
        sharing = self.num_processes if len(batch) >= self.num_processes else 1
        return min(-(-len(batch) // (self.fitting(batch) * sharing)), len(batch) // sharing)


class TokenBatchSampler(GlobalBatchSampler):
    """[`GlobalBatchSampler`] whose batches are limited by tokens, padding included, and not by examples.

    A global batch holds at most `per_device_batch_tokens * num_processes * accumulation_steps` tokens when each of its
    columns (source and target) is padded to its longest. Examples of similar length are together; those of equal
    lengths change places from epoch to epoch, and so does the order of the batches, but their sizes stay.

    Args:
        lengths: `(examples, columns)`, the number of tokens of each.

    Raises:
        ValueError: if an example has more tokens than fit a device.
    """

    MULTIPLE = 8  # of examples, where there are as many: most numbers of processes then share them evenly

    def __init__(self, lengths: Sequence[Sequence[int]], per_device_batch_tokens: int, **division: int):
        self.columns = torch.as_tensor(lengths)
        longest = int(self.columns.sum(dim=1).max())
        if longest > per_device_batch_tokens:
            raise ValueError(
                f"per_device_train_batch_tokens {per_device_batch_tokens}: too few for an example of {longest} tokens"
            )
        self.sizes: list[int] = []
        super().__init__(len(self.columns), per_device_batch_tokens, **division)

    def make_batches(self, generator: torch.Generator) -> Sequence[Tensor]:
        order = torch.randperm(self.size, generator=generator)
        for column in self.columns.T:  # the last column decides, the others where it is equal
            order = order[column[order].argsort(stable=True)]
        self.sizes = self.sizes or self._sizes(self.columns[order])
        batches = order.split(self.sizes)
        return [batches[index] for index in torch.randperm(len(batches), generator=generator)]

    def fitting(self, batch: Tensor) -> int:
        # One always does, though the longest source and the longest target be of two examples.
        return max(1, self.per_device_batch_size // int(self.columns[batch].amax(dim=0).sum()))

    def _sizes(self, lengths: Tensor) -> list[int]:
        """How many examples of the sorted `lengths` each batch takes: as many as fit."""
        sizes: list[int] = []
        start = 0
        while start < len(lengths):
            padded = lengths[start : start + self.global_batch_size].cummax(dim=0).values.sum(dim=1)
            size = int((padded * torch.arange(1, len(padded) + 1) <= self.global_batch_size).sum())
            if size > self.MULTIPLE and start + size < len(lengths):
                size -= size % self.MULTIPLE
            sizes.append(size)
            start += size
        return sizes
