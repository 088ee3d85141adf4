"""Pearson's correlation: how near numbers are to a straight line through their references."""

from collections.abc import Sequence

import numpy as np

from tfm_zoo.training.metrics.loading import NUMBERS, metric


def pearsonr(predictions: Sequence[float], references: Sequence[float]) -> dict[str, float]:
    """From -1 to 1. It is 0 if all predictions or all references are equal, where no correlation is defined."""
    if not np.ptp(predictions) or not np.ptp(references):
        return {"pearsonr": 0.0}
    return {"pearsonr": float(np.corrcoef(predictions, references)[0, 1])}


Pearsonr = metric(pearsonr, NUMBERS)
