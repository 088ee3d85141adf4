"""The likeliest spans of a window, from the logits of their first and last tokens."""

import torch


def likeliest_spans(
    start_logits: torch.Tensor,
    end_logits: torch.Tensor,
    allowed: torch.Tensor,
    null: torch.Tensor,
    longest: int,
    count: int,
) -> tuple[list[tuple[int, int, float]], float]:
    """The likeliest spans, and how likely it is that there is none.

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
        logits.float().masked_fill(~(allowed | null), -torch.inf).softmax(dim=0)
        for logits in (start_logits, end_logits)
    )
    none = (first * last)[null].max().item() if null.any() else 0.0
    spans = torch.ones(len(first), len(last), dtype=torch.bool).triu().tril(longest - 1)
    spans &= allowed[:, None] & allowed[None, :]
    scores = torch.where(spans, first[:, None] * last[None, :], -1.0)
    best, places = scores.flatten().topk(min(count, int(spans.sum())))
    return [
        (*divmod(place, len(last)), score) for place, score in zip(places.tolist(), best.tolist(), strict=True)
    ], none
