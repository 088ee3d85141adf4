"""Mean squared error."""

from collections.abc import Sequence

import numpy as np

from tfm_zoo.training.metrics.loading import LISTS_OF_NUMBERS, NUMBERS, metric


def mse(predictions: Sequence, references: Sequence) -> dict[str, float]:
    """The mean squared error of numbers, `(examples,)` or `(examples, labels)`."""
    return {"mse": float(np.square(np.asarray(predictions) - np.asarray(references)).mean())}


MSE = metric(mse, NUMBERS, LISTS_OF_NUMBERS)
