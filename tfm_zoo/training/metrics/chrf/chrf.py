"""chrF (Popović 2015) of texts, in percent, as sacrebleu computes it."""

from collections.abc import Sequence

import evaluate
from datasets import Features, Value
from sacrebleu.metrics import CHRF

from tfm_zoo.training.metrics.sacrebleu.sacrebleu import corpus_score

TEXT = Value("string")


class Chrf(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(__doc__, "", Features(predictions=TEXT, references=TEXT))

    def _compute(self, predictions: Sequence[str], references: Sequence[str]) -> dict[str, float | str]:
        score, signature = corpus_score(CHRF(), predictions, references)
        return {"chrf": score, "chrf_signature": signature}
