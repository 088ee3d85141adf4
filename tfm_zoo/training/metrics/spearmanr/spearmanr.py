"""Spearman's correlation: how well numbers have the order of their references."""

from collections.abc import Sequence

import evaluate
import numpy as np
from datasets import Features, Value

from tfm_zoo.training.metrics.pearsonr.pearsonr import pearsonr

NUMBER = Value("float64")


def spearmanr(predictions: Sequence[float], references: Sequence[float]) -> float:
    """Pearson's correlation of the ranks."""
    return pearsonr(ranks(predictions), ranks(references))


def ranks(values: Sequence[float]) -> np.ndarray:
    """The place of each value in their order, from 1; equal ones share the mean of their places."""
    _, order, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (counts.cumsum() - (counts - 1) / 2)[order]


class Spearmanr(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(__doc__, "", Features(predictions=NUMBER, references=NUMBER))

    def _compute(self, predictions: Sequence[float], references: Sequence[float]) -> dict[str, float]:
        return {"spearmanr": spearmanr(predictions, references)}
