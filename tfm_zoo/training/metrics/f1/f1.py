"""F1 of classes or labels: the harmonic mean of precision and recall."""

from collections.abc import Sequence

import numpy as np

from tfm_zoo.training.metrics.loading import LISTS_OF_NUMBERS, NUMBERS, metric, whole_numbers


def f1(predictions: Sequence, references: Sequence) -> dict[str, float]:
    """`f1` is the mean over classes (macro); one without a true positive has 0. Several labels also have `f1_micro`, of
    all labels together, which for one label is the accuracy.

    Args:
        predictions: class ids `(examples,)`, and those count that occur in predictions or references; or labels as
            0 and 1, `(examples, labels)`, and all count.
        references: the right ones, of the same shape.
    """
    predictions, references = whole_numbers(predictions), whole_numbers(references)
    one_label = predictions.ndim == 1
    if one_label:
        classes = np.union1d(predictions, references)
        predictions, references = predictions[:, None] == classes, references[:, None] == classes
    common = (predictions & references).sum(axis=0)
    occurrences = predictions.sum(axis=0) + references.sum(axis=0)
    scores = {"f1": float((2 * common / np.maximum(occurrences, 1)).mean())}
    return scores if one_label else scores | {"f1_micro": float(2 * common.sum() / max(occurrences.sum(), 1))}


F1 = metric(f1, NUMBERS, LISTS_OF_NUMBERS)
