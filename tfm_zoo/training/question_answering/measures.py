"""What answers are measured by: exact match and F1, as SQuAD counts them; and which spans of a window are the best."""

import re
import string
from collections import Counter
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

PUNCTUATION = str.maketrans("", "", string.punctuation)
ARTICLES = re.compile(r"\b(a|an|the)\b")


def answer_scores(answers: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Exact match and F1 (Rajpurkar et al. 2016), in percent: the mean over questions, each with its best reference.

    A question without references has no answer, and "" is right (Rajpurkar et al. 2018).
    """
    pairs = [(answer, right or [""]) for answer, right in zip(answers, references, strict=True)]
    exact = [max(normalised(answer) == normalised(each) for each in right) for answer, right in pairs]
    f1 = [max(word_f1(answer, each) for each in right) for answer, right in pairs]
    return {"exact_match": 100 * sum(exact) / len(exact), "f1": 100 * sum(f1) / len(f1)}


def word_f1(answer: str, reference: str) -> float:
    """F1 of the words of an answer; 1 if both have none, 0 if one has none."""
    given, right = normalised(answer).split(), normalised(reference).split()
    if not given or not right:
        return float(given == right)
    return 2 * (Counter(given) & Counter(right)).total() / (len(given) + len(right))


def normalised(text: str) -> str:
    """A text in small letters, without punctuation and English articles, with single blanks."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def best_spans(
    start_logits: Tensor, end_logits: Tensor, allowed: Tensor, longest: int, count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, first and last tokens of the best spans of each window, each `(windows, count)`, the best first; a score
    is -inf where there are no more spans.

    A span's score is the sum of its `start_logits` and `end_logits`, `(windows, length)`. It begins and ends where
    `allowed`, `(windows, length)`, is true, and has at most `longest` tokens.
    """
    length = start_logits.shape[1]
    spans = allowed.new_ones(length, length).triu().tril(longest - 1) & allowed[:, :, None] & allowed[:, None, :]
    scores = (start_logits[:, :, None] + end_logits[:, None, :]).masked_fill(~spans, -torch.inf).flatten(1)
    best, places = scores.topk(min(count, scores.shape[1]))
    missing = (0, count - best.shape[1])
    places = F.pad(places, missing)
    return F.pad(best, missing, value=-torch.inf), places // length, places % length
