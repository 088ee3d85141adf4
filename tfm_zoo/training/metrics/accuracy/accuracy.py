"""How many predictions are right."""

from collections.abc import Sequence

from tfm_zoo.training.metrics.loading import LISTS_OF_NUMBERS, NUMBERS, metric, whole_numbers


def accuracy(predictions: Sequence, references: Sequence) -> dict[str, float]:
    """The share of examples whose class is right; or, of several labels, the share whose labels are all right.

    Args:
        predictions: class ids `(examples,)`, or labels as 0 and 1, `(examples, labels)`.
        references: the right ones, of the same shape.
    """
    right = whole_numbers(predictions) == whole_numbers(references)
    return {"accuracy": float(right.reshape(len(right), -1).all(axis=1).mean())}


Accuracy = metric(accuracy, NUMBERS, LISTS_OF_NUMBERS)
