"""chrF (Popović 2015) of texts, in percent, as sacrebleu computes it."""

from collections.abc import Sequence

from sacrebleu.metrics import CHRF

from tfm_zoo.training.metrics.loading import TEXTS, metric
from tfm_zoo.training.metrics.sacrebleu.sacrebleu import corpus_score


def chrf(predictions: Sequence[str], references: Sequence[str]) -> dict[str, float | str]:
    """chrF, in percent, and its signature."""
    return corpus_score("chrf", CHRF(), predictions, references)


Chrf = metric(chrf, TEXTS)
