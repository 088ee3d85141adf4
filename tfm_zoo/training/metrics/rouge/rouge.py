"""ROUGE-1, ROUGE-2 and ROUGE-L of summaries (Lin 2004), in percent."""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from tfm_zoo.training.metrics.loading import TEXTS, metric


def rouge(summaries: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """ROUGE-1, ROUGE-2 and ROUGE-L of summaries: the mean F1, in percent.

    Words are runs of a to z and digits, in lower case and not stemmed, as in the library rouge_score. Texts in other
    alphabets have no such words.
    """
    words = ([re.findall("[a-z0-9]+", text.lower()) for text in texts] for texts in (summaries, references))
    pairs = zip(*words, strict=True)
    scores = [(n_gram_f1(*pair, 1), n_gram_f1(*pair, 2), subsequence_f1(*pair)) for pair in pairs]
    return dict(zip(("rouge1", "rouge2", "rougeL"), 100 * np.mean(scores, axis=0), strict=True))


def n_gram_f1(summary: Sequence[str], reference: Sequence[str], n: int) -> float:
    """F1 of the runs of `n` words that two texts have in common."""
    given, right = (Counter(zip(*(words[i:] for i in range(n)), strict=False)) for words in (summary, reference))
    return f1((given & right).total(), given.total(), right.total())


def subsequence_f1(summary: Sequence[str], reference: Sequence[str]) -> float:
    """F1 of the longest sequence of words that both have in this order, whatever stands between."""
    lengths = [0] * (len(reference) + 1)  # lengths[n]: the longest so far in the reference's first n words
    for word in summary:
        before = lengths.copy()
        for place, reference_word in enumerate(reference):
            lengths[place + 1] = before[place] + 1 if word == reference_word else max(lengths[place], before[place + 1])
    return f1(lengths[-1], len(summary), len(reference))


def f1(common: int, given: int, right: int) -> float:
    return 2 * common / max(given + right, 1)


Rouge = metric(rouge, TEXTS)
