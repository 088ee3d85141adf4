"""Accuracy and F1 as an `evaluate` metric that needs neither the Hub nor scikit-learn."""

import datasets
import evaluate
import numpy as np

AVERAGES = ("macro", "micro", "weighted", "binary")


class ClassificationMetric(evaluate.Metric):
    """`compute(predictions=, references=, average="macro")` gives `{"accuracy": ..., "f1": ...}`.

    `average` says how the F1 of the classes become one: their mean ("macro"), their mean weighted by how often each
    class occurs ("weighted"), F1 of all decisions pooled ("micro"), or F1 of class 1 alone ("binary"). Classes are
    those that occur in predictions or references; a class without a true positive has F1 = 0.
    """

    names = ("accuracy", "f1")

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description="Accuracy and F1 of single-label classification.",
            citation="",
            inputs_description="predictions, references: class ids. average: one of " + ", ".join(AVERAGES),
            features=datasets.Features({"predictions": datasets.Value("int64"), "references": datasets.Value("int64")}),
        )

    def _compute(self, predictions: list[int], references: list[int], average: str = "macro") -> dict[str, float]:
        if average not in AVERAGES:
            raise ValueError(f"average must be one of {', '.join(AVERAGES)}, not {average!r}")
        predictions, references = np.asarray(predictions), np.asarray(references)
        correct = predictions == references
        accuracy = float(correct.mean())
        if average == "micro":  # with one label per example, pooled F1 is accuracy
            return {"accuracy": accuracy, "f1": accuracy}

        classes = np.array([1]) if average == "binary" else np.union1d(predictions, references)
        true_positives = np.array([np.sum(correct & (references == c)) for c in classes])
        predicted = np.array([np.sum(predictions == c) for c in classes])
        support = np.array([np.sum(references == c) for c in classes])
        f1 = 2 * true_positives / np.maximum(predicted + support, 1)
        return {
            "accuracy": accuracy,
            "f1": float(np.average(f1, weights=support if average == "weighted" else None)),
        }


def classification_metric() -> ClassificationMetric:
    """The metric with its examples kept in memory: no cache file for processes to share or to fight over."""
    return ClassificationMetric(keep_in_memory=True)
