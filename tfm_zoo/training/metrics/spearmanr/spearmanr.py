"""Spearman's correlation: how well numbers have the order of their references."""

from collections.abc import Sequence

import numpy as np

from tfm_zoo.training.metrics.loading import NUMBERS, metric
from tfm_zoo.training.metrics.pearsonr.pearsonr import pearsonr


def spearmanr(predictions: Sequence[float], references: Sequence[float]) -> dict[str, float]:
    """Pearson's correlation of the ranks."""
    return {"spearmanr": pearsonr(ranks(predictions), ranks(references))["pearsonr"]}


def ranks(values: Sequence[float]) -> np.ndarray:
    """The place of each value in their order, from 1; equal ones share the mean of their places."""
    _, order, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (counts.cumsum() - (counts - 1) / 2)[order]


Spearmanr = metric(spearmanr, NUMBERS)
