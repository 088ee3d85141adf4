"""The likeliest spans of a window, from the logits of their first and last tokens."""

import math

import torch
from torch import Tensor

from ..data.windows import best_spans


def likeliest_spans(
    start_logits: Tensor, end_logits: Tensor, allowed: Tensor, null: Tensor, longest: int, count: int
) -> tuple[list[tuple[int, int, float]], float]:
    """The likeliest spans, and how likely it is that there is no span.

    A span's probability is that of its first token times that of its last: softmaxes over the tokens where an answer
    may begin and end, and over those that stand for no answer.

    Args:
        start_logits: `(length,)`.
        end_logits: `(length,)`.
        allowed: `(length,)`, true where an answer may begin and end.
        null: `(length,)`, true at tokens that stand for no answer.
        longest: the most tokens in a span.
        count: how many spans are wanted.

    Returns:
        `(first, last, probability)` of at most `count` spans, the likeliest first; the probability of no answer.
    """
    if not allowed.any():
        return [], 1.0 if null.any() else 0.0
    first, last = (
        logits.float().masked_fill(~(allowed | null), -torch.inf).log_softmax(dim=0)
        for logits in (start_logits, end_logits)
    )
    none = (first + last)[null].max().exp().item() if null.any() else 0.0
    best = best_spans(first[None], last[None], allowed[None], longest, count)
    scores, starts, ends = (values[0].tolist() for values in best)
    spans = zip(starts, ends, scores, strict=True)
    return [(start, end, math.exp(score)) for start, end, score in spans if score > -math.inf], none
