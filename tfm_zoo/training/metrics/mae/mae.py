"""Mean absolute error."""

from collections.abc import Sequence

import evaluate
import numpy as np
from datasets import Features, List, Value

KINDS = (Value("float64"), List(Value("float64")))


def mae(predictions: Sequence, references: Sequence) -> float:
    """The mean absolute error of numbers, `(examples,)` or `(examples, labels)`."""
    return float(np.abs(np.asarray(predictions) - np.asarray(references)).mean())


class MAE(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(__doc__, "", [Features(predictions=kind, references=kind) for kind in KINDS])

    def _compute(self, predictions: Sequence, references: Sequence) -> dict[str, float]:
        return {"mae": mae(predictions, references)}
