"""How many predictions are right."""

from collections.abc import Sequence

import evaluate
import numpy as np
from datasets import Features, List, Value

KINDS = (Value("int64"), List(Value("int64")))


def accuracy(predictions: Sequence, references: Sequence) -> float:
    """The share of examples whose class is right; or, of several labels, the share whose labels are all right.

    Args:
        predictions: class ids `(examples,)`, or labels as 0 and 1, `(examples, labels)`.
        references: the right ones, of the same shape.
    """
    right = np.asarray(predictions) == np.asarray(references)
    return float(right.reshape(len(right), -1).all(axis=1).mean())


class Accuracy(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(__doc__, "", [Features(predictions=kind, references=kind) for kind in KINDS])

    def _compute(self, predictions: Sequence, references: Sequence) -> dict[str, float]:
        return {"accuracy": accuracy(predictions, references)}
