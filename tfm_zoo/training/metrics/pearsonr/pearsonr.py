"""Pearson's correlation: how near numbers are to a straight line through their references."""

from collections.abc import Sequence

import evaluate
import numpy as np
from datasets import Features, Value

NUMBER = Value("float64")


def pearsonr(predictions: Sequence[float], references: Sequence[float]) -> float:
    """From -1 to 1. It is 0 if all predictions or all references are equal, where no correlation is defined."""
    if not np.ptp(predictions) or not np.ptp(references):
        return 0.0
    return float(np.corrcoef(predictions, references)[0, 1])


class Pearsonr(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(__doc__, "", Features(predictions=NUMBER, references=NUMBER))

    def _compute(self, predictions: Sequence[float], references: Sequence[float]) -> dict[str, float]:
        return {"pearsonr": pearsonr(predictions, references)}
