"""BLEU (Papineni et al. 2002) of texts, in percent, as sacrebleu computes it."""

from collections.abc import Sequence

import evaluate
from datasets import Features, Value
from sacrebleu.metrics import BLEU, CHRF

TEXT = Value("string")


def corpus_score(metric: BLEU | CHRF, predictions: Sequence[str], references: Sequence[str]) -> tuple[float, str]:
    """The score of texts, in percent, and its signature: scores can be compared only if their signatures agree."""
    texts, right = ([text.strip() for text in texts] for texts in (predictions, references))
    score = metric.corpus_score(texts, [right])
    return score.score, f"{score.name}|{metric.get_signature()}"


class Sacrebleu(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(__doc__, "", Features(predictions=TEXT, references=TEXT))

    def _compute(self, predictions: Sequence[str], references: Sequence[str]) -> dict[str, float | str]:
        score, signature = corpus_score(BLEU(), predictions, references)
        return {"bleu": score, "bleu_signature": signature}
