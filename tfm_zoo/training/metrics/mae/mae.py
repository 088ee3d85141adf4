"""Mean absolute error."""

from collections.abc import Sequence

import numpy as np

from tfm_zoo.training.metrics.loading import LISTS_OF_NUMBERS, NUMBERS, metric


def mae(predictions: Sequence, references: Sequence) -> dict[str, float]:
    """The mean absolute error of numbers, `(examples,)` or `(examples, labels)`."""
    return {"mae": float(np.abs(np.asarray(predictions) - np.asarray(references)).mean())}


MAE = metric(mae, NUMBERS, LISTS_OF_NUMBERS)
