"""The loss of the texts that a model writes, with smoothed labels or without."""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from tfm_zoo.models.losses import IGNORED
from tfm_zoo.training.task import Batch, inputs_of


def labelled_logits(model: nn.Module, batch: Batch, is_zoo: bool) -> tuple[Tensor, Tensor]:
    """Logits `(tokens, vocab_size)` and labels `(tokens,)` of the target's tokens, without padding."""
    labelled = batch["labels"] != IGNORED
    if is_zoo:  # which makes no other logits; an official model makes those of all positions
        logits = model(**inputs_of(batch), use_cache=False, logits_to_keep=labelled).logits
    else:
        logits = model(**inputs_of(batch), use_cache=False).logits[labelled]
    return logits.float(), batch["labels"][labelled]


def label_smoothed_loss(
    logits: Tensor,
    labels: Tensor,
    epsilon: float,
    over: Literal["others", "all"] = "others",
    reduction: Literal["mean", "sum", "none"] = "mean",
) -> Tensor:
    """Cross-entropy against labels that give the mass `epsilon` to other classes, evenly.

    `"others"`: the label keeps `1 - epsilon`, and every other class gets `epsilon / (vocab_size - 1)`. This is
    Tensor2Tensor's definition, with which *Attention Is All You Need* was trained.

    `"all"`: every class gets `epsilon / vocab_size`, and the label `1 - epsilon` more. This is the definition of
    Szegedy et al. (2016), whom the paper cites, and of torch's `cross_entropy(label_smoothing=...)`.

    Args:
        logits: `(tokens, vocab_size)`.
        labels: `(tokens,)`; -100 marks positions that do not count.
        epsilon: 0 (no smoothing) or more; at most 1, and of `"others"` at most `1 - 1 / vocab_size`.

    Returns:
        A scalar: the mean over labelled positions, or the sum; or `(tokens,)`, 0 where there is no label.
    """
    if over not in ("others", "all"):
        raise ValueError(f"over must be 'others' or 'all', not {over!r}")
    classes = logits.shape[-1]
    # Spread over all classes, this mass gives epsilon / (classes - 1) to each and leaves 1 - epsilon to the label.
    spread = epsilon * classes / (classes - 1) if over == "others" else epsilon
    if not 0 <= spread <= 1:
        raise ValueError(f"epsilon={epsilon} cannot be spread over {classes} classes ({over!r}): 0.1 is usual")
    return F.cross_entropy(logits.float(), labels, reduction=reduction, label_smoothing=spread)
