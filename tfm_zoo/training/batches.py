"""Batches that depend on the seed and the global batch size alone, not on how many processes share the work."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import torch
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
        self.micro_batch_size = per_device_batch_size * num_processes
        self.global_batch_size = self.micro_batch_size * accumulation_steps
        self.num_processes = num_processes
        self.process_index = process_index
        self.seed = seed
        self.lengths = lengths
        self.set_position(epoch=0)

    def __len__(self) -> int:
        """Optimiser steps in an epoch."""
        return -(-self.size // self.global_batch_size)

    def set_position(self, epoch: int, step: int = 0) -> None:
        """Let the next iteration begin at optimiser step `step` of epoch `epoch`."""
        self.epoch, self.first_step = epoch, step

    def __iter__(self) -> Iterator[list[int]]:
        order = self._order()
        for step in range(self.first_step, len(self)):
            batch = order[step * self.global_batch_size : (step + 1) * self.global_batch_size]
            for part in torch.tensor(batch).tensor_split(self._micro_batches(step)):
                whole = len(part) < self.num_processes
                yield part.tolist() if whole else part[self.process_index :: self.num_processes].tolist()

    def steps(self, loader: Iterable[Any]) -> Iterator[list[Any]]:
        """Group the batches of `loader`, which reads from this sampler, by optimiser step."""
        batches = iter(loader)
        for step in range(self.first_step, len(self)):
            yield list(islice(batches, self._micro_batches(step)))

    def examples(self, step: int) -> int:
        """Number of examples in the global batch of a step of the epoch."""
        return min(self.global_batch_size, self.size - step * self.global_batch_size)

    def _micro_batches(self, step: int) -> int:
        examples = self.examples(step)
        # As few as memory allows, but never so many that a process would be left without an example.
        return max(1, min(-(-examples // self.micro_batch_size), examples // self.num_processes))

    def _order(self) -> list[int]:
        generator = torch.Generator().manual_seed(1009 * self.seed + self.epoch)
        if self.lengths is None:
            return torch.randperm(self.size, generator=generator).tolist()
        return list(LengthGroupedSampler(self.global_batch_size, lengths=self.lengths, generator=generator))
