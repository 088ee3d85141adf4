"""ROUGE-1, ROUGE-2 and ROUGE-L of summaries (Lin 2004), in percent."""

import re
from collections import Counter
from collections.abc import Sequence

import evaluate
from datasets import Features, Value

TEXT = Value("string")
NAMES = ("rouge1", "rouge2", "rougeL")


def rouge_scores(summaries: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """ROUGE-1, ROUGE-2 and ROUGE-L of summaries: the mean F1, in percent.

    Words are runs of a to z and digits, in lower case and not stemmed, as in the library rouge_score. Texts in other
    alphabets have no such words.
    """
    words = ([re.findall("[a-z0-9]+", text.lower()) for text in texts] for texts in (summaries, references))
    pairs = list(zip(*words, strict=True))
    of_each = [(n_gram_f1(*pair, 1), n_gram_f1(*pair, 2), subsequence_f1(*pair)) for pair in pairs]
    by_name = zip(NAMES, zip(*of_each, strict=True), strict=True)
    return {name: 100 * sum(values) / len(pairs) for name, values in by_name}


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


class Rouge(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(__doc__, "", Features(predictions=TEXT, references=TEXT))

    def _compute(self, predictions: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        return rouge_scores(predictions, references)
