"""Accuracy and F1 as an `evaluate` metric that needs neither the Hub nor scikit-learn."""

import datasets
import evaluate
import numpy as np


class ClassificationMetric(evaluate.Metric):
    """`compute(predictions=, references=)` gives `{"accuracy": ..., "f1": ...}`.

    F1 is the mean over the classes ("macro") that occur in predictions or references; a class without a true positive
    has F1 = 0.
    """

    names = ("accuracy", "f1")

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description="Accuracy and F1 (macro) of single-label classification.",
            citation="",
            inputs_description="predictions, references: class ids.",
            features=datasets.Features({"predictions": datasets.Value("int64"), "references": datasets.Value("int64")}),
        )

    def _compute(self, predictions: list[int], references: list[int]) -> dict[str, float]:
        predictions, references = np.asarray(predictions), np.asarray(references)
        correct = predictions == references
        classes = np.union1d(predictions, references)
        true_positives = np.array([np.sum(correct & (references == c)) for c in classes])
        predicted = np.array([np.sum(predictions == c) for c in classes])
        support = np.array([np.sum(references == c) for c in classes])
        f1 = 2 * true_positives / (predicted + support)
        return {"accuracy": float(correct.mean()), "f1": float(f1.mean())}


def classification_metric() -> ClassificationMetric:
    """The metric with its examples kept in memory: no cache file for processes to share or to fight over."""
    return ClassificationMetric(keep_in_memory=True)
