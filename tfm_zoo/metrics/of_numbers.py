"""Metrics of class ids, of labels as 0 and 1, and of numbers: `(examples,)`, or `(examples, labels)` where each has
several."""

from collections.abc import Sequence

import numpy as np


def accuracy(predictions: Sequence, references: Sequence) -> dict[str, float]:
    """The share of examples whose class is right; or, of several labels, the share whose labels are all right."""
    right = whole_numbers(predictions) == whole_numbers(references)
    return {"accuracy": float(right.reshape(len(right), -1).all(axis=1).mean())}


def f1(predictions: Sequence, references: Sequence) -> dict[str, float]:
    """The mean F1 of classes (macro), the harmonic mean of precision and recall; one without a true positive has 0.

    Of classes those count that occur in predictions or references. Of several labels all count, and these also have
    `f1_micro`, of all labels together, which for one label is the accuracy.
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


def mse(predictions: Sequence, references: Sequence) -> dict[str, float]:
    """The mean squared error."""
    return {"mse": float(np.square(np.asarray(predictions) - np.asarray(references)).mean())}


def mae(predictions: Sequence, references: Sequence) -> dict[str, float]:
    """The mean absolute error."""
    return {"mae": float(np.abs(np.asarray(predictions) - np.asarray(references)).mean())}


def pearsonr(predictions: Sequence[float], references: Sequence[float]) -> dict[str, float]:
    """Pearson's correlation, from -1 to 1: how near numbers are to a straight line through their references. It is 0 if
    all predictions or all references are equal, where no correlation is defined."""
    if not np.ptp(predictions) or not np.ptp(references):
        return {"pearsonr": 0.0}
    return {"pearsonr": float(np.corrcoef(predictions, references)[0, 1])}


def spearmanr(predictions: Sequence[float], references: Sequence[float]) -> dict[str, float]:
    """Spearman's correlation, Pearson's of the ranks: how well numbers have the order of their references."""
    return {"spearmanr": pearsonr(ranks(predictions), ranks(references))["pearsonr"]}


def ranks(values: Sequence[float]) -> np.ndarray:
    """The place of each value in their order, from 1; equal ones share the mean of their places."""
    _, order, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (counts.cumsum() - (counts - 1) / 2)[order]


def whole_numbers(values: Sequence) -> np.ndarray:
    """Class ids or labels. Refuses a number that is not whole: it is that of a regression."""
    values = np.asarray(values)
    wrong = values[values != np.rint(values)]
    if wrong.size:
        raise ValueError(f"classes are whole numbers, not {wrong[0]:g}: numbers are measured by mse, mae or pearsonr")
    return values.astype(np.int64)
