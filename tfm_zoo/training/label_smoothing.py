"""Cross-entropy against smoothed labels, by both definitions that go under that name."""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor


def label_smoothed_loss(
    logits: Tensor,
    labels: Tensor,
    epsilon: float,
    over: Literal["others", "all"] = "others",
    reduction: Literal["mean", "sum", "none"] = "mean",
) -> Tensor:
    """Cross-entropy against labels of which the mass `epsilon` is spread evenly.

    `"others"` spreads it over the vocabulary without the label, which keeps `1 - epsilon`: every other class gets
    `epsilon / (vocab_size - 1)`. So does Tensor2Tensor, with which *Attention Is All You Need* was trained.

    `"all"` spreads it over the whole vocabulary, so that the label has `1 - epsilon + epsilon / vocab_size`. So do
    Szegedy et al. (2016), whom the paper cites, and torch's `cross_entropy(label_smoothing=...)`.

    Args:
        logits: `(tokens, vocab_size)`.
        labels: `(tokens,)`, -100 where there is none: such positions count for nothing.
        epsilon: 0 (no smoothing) or more; at most 1, and of `"others"` at most `1 - 1 / vocab_size`.

    Returns:
        A scalar: the mean over labelled positions, or the sum; or `(tokens,)`, 0 where there is no label.

    Raises:
        ValueError: for an `epsilon` out of range, or a name that is neither definition's.
    """
    if over not in ("others", "all"):
        raise ValueError(f"over must be 'others' or 'all', not {over!r}")
    classes = logits.shape[-1]
    # Spread over all classes, so much gives epsilon / (classes - 1) to each, and leaves 1 - epsilon to the label.
    spread = epsilon * classes / (classes - 1) if over == "others" else epsilon
    if not 0 <= spread <= 1:
        raise ValueError(f"epsilon={epsilon} cannot be spread over {classes} classes ({over!r}): 0.1 is usual")
    return F.cross_entropy(logits.float(), labels, reduction=reduction, label_smoothing=spread)
