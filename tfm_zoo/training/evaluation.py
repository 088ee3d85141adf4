"""What several tasks need to evaluate."""

import math

from torch import Tensor

from tfm_zoo.training.task import Batch


def inputs_of(batch: Batch) -> Batch:
    """The part of a batch that the model reads: all but what it predicts."""
    return {name: value for name, value in batch.items() if name not in ("labels", "next_sentence_label")}


def loss_and_perplexity(sums: Tensor) -> dict[str, float]:
    """The mean loss per token, in nats, and its exponential; `sums`, `(2, rows)`, are losses and numbers of tokens."""
    loss_sum, tokens = sums.sum(dim=1).tolist()
    loss = loss_sum / tokens
    return {"loss": loss, "perplexity": math.exp(min(loss, 700))}


def sums_of_rows(values: Tensor, rows: Tensor) -> Tensor:
    """The values `(items, columns)`, summed by row; `rows`, `(rows, length)`, is true where an item is."""
    return values.new_zeros(len(rows), values.shape[1]).index_add_(0, rows.nonzero()[:, 0], values)
