"""What a classifier predicts, from its logits; and the zoo's metrics in transformers' Trainer."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from torch import Tensor
from transformers import EvalPrediction

from .loading import Metrics

Array = TypeVar("Array", np.ndarray, Tensor)


def predicted(logits: Array, problem_type: str) -> Array:
    """What logits predict.

    Args:
        logits: `(rows, labels)`.
        problem_type: one of transformers'.

    Returns:
        For `"single_label_classification"` the class of each row, `(rows,)`; for `"multi_label_classification"` 1 for
        each label that is likelier than not, and 0 for others, `(rows, labels)`; for `"regression"` the numbers, which
        are `(rows,)` if there is one a row.
    """
    if problem_type == "single_label_classification":
        return logits.argmax(-1)
    if problem_type == "multi_label_classification":
        return (logits > 0) * 1
    return logits[:, 0] if logits.shape[-1] == 1 else logits


def for_trainer(metrics: Metrics, problem_type: str | None = None) -> Callable[[EvalPrediction], dict[str, float]]:
    """What `Trainer(compute_metrics=...)` takes, for a classifier.

    Args:
        metrics: of `load_metrics`.
        problem_type: the model's; by default what transformers takes it for: a single logit is a regression's, integer
            labels are classes, and others are several labels.
    """

    def compute_metrics(evaluated: EvalPrediction) -> dict[str, float]:
        logits, labels = evaluated.predictions, evaluated.label_ids
        logits = logits[0] if isinstance(logits, tuple) else logits  # hidden states may follow them
        are_classes = np.issubdtype(labels.dtype, np.integer)
        usual = "single_label_classification" if are_classes else "multi_label_classification"
        usual = "regression" if logits.shape[-1] == 1 else usual
        return metrics(predicted(logits, problem_type or usual), labels).figures

    return compute_metrics
