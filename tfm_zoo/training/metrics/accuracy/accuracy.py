"""How many predictions are right."""

from collections.abc import Sequence

import numpy as np

from tfm_zoo.training.metrics.loading import LISTS_OF_NUMBERS, NUMBERS, metric


def accuracy(predictions: Sequence, references: Sequence) -> dict[str, float]:
    """The share of examples whose class is right; or, of several labels, the share whose labels are all right.

    Args:
        predictions: class ids `(examples,)`, or labels as 0 and 1, `(examples, labels)`.
        references: the right ones, of the same shape.
    """
    right = whole_numbers(predictions) == whole_numbers(references)
    return {"accuracy": float(right.reshape(len(right), -1).all(axis=1).mean())}


def whole_numbers(values: Sequence) -> np.ndarray:
    """Class ids or labels. Refuses a number that is not whole: it is that of a regression."""
    values = np.asarray(values)
    wrong = values[values != np.rint(values)]
    if wrong.size:
        raise ValueError(f"classes are whole numbers, not {wrong[0]:g}: numbers are measured by mse, mae or pearsonr")
    return values.astype(np.int64)


Accuracy = metric(accuracy, NUMBERS, LISTS_OF_NUMBERS)
