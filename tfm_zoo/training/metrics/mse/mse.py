"""Mean squared error."""

from collections.abc import Sequence

import evaluate
import numpy as np
from datasets import Features, List, Value

KINDS = (Value("float64"), List(Value("float64")))


def mse(predictions: Sequence, references: Sequence) -> float:
    """The mean squared error of numbers, `(examples,)` or `(examples, labels)`."""
    return float(np.square(np.asarray(predictions) - np.asarray(references)).mean())


class MSE(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(__doc__, "", [Features(predictions=kind, references=kind) for kind in KINDS])

    def _compute(self, predictions: Sequence, references: Sequence) -> dict[str, float]:
        return {"mse": mse(predictions, references)}
