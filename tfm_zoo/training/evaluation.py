"""Evaluation of a model, example by example, on all processes."""

import math
from collections.abc import Callable, Iterable
from time import perf_counter

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from tfm_zoo.training.task import Batch


@torch.no_grad()
def evaluate_examples(
    accelerator: Accelerator, model: nn.Module, loader: Iterable[Batch], measure: Callable[[Batch], Tensor]
) -> tuple[Tensor, dict[str, float]]:
    """The figures of all examples, `(columns, examples)`, the same on every process; and `samples_per_second`.

    Args:
        measure: gives the figures of a batch, `(examples, columns)`.
    """
    model.eval()
    start = perf_counter()
    # `gather_for_metrics` drops the examples that filled up the last batch so that every process had one.
    rows = torch.cat([accelerator.gather_for_metrics(measure(batch)).cpu() for batch in loader])
    seconds = perf_counter() - start
    model.train()
    return rows.double().T, {"samples_per_second": len(rows) / seconds}


def loss_and_perplexity(loss_sum: float, tokens: float) -> dict[str, float]:
    """The mean loss per token, in nats, and its exponential."""
    loss = loss_sum / tokens
    return {"loss": loss, "perplexity": math.exp(min(loss, 700))}


def sums_of_rows(values: Tensor, rows: Tensor) -> Tensor:
    """The values `(items, columns)`, summed by row; `rows`, `(rows, length)`, is true where an item is."""
    return values.new_zeros(len(rows), values.shape[1]).index_add_(0, rows.nonzero()[:, 0], values)
