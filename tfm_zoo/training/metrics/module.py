"""A plain function as a metric of `evaluate`."""

from collections.abc import Callable, Sequence
from typing import Any

import evaluate
from datasets import Features, List, Value

# As whole numbers, evaluate would cut off what is behind the point.
NUMBERS = Features(predictions=Value("float64"), references=Value("float64"))
LISTS_OF_NUMBERS = Features(predictions=List(Value("float64")), references=List(Value("float64")))
TEXTS = Features(predictions=Value("string"), references=Value("string"))


def metric(compute: Callable[[Sequence, Sequence], dict[str, Any]], *kinds: Features) -> type[evaluate.Metric]:
    """The class that `evaluate.load` looks for in a module.

    Args:
        compute: takes predictions and references, an item for each example, and returns results by their names.
        kinds: what a prediction and a reference can be, such as `TEXTS`; the first kind that fits the rows is taken.
    """

    class Metric(evaluate.Metric):
        def _info(self) -> evaluate.MetricInfo:
            return evaluate.MetricInfo(compute.__doc__, "", kinds[0] if len(kinds) == 1 else list(kinds))

        def _compute(self, predictions: Sequence, references: Sequence) -> dict[str, Any]:
            return compute(predictions, references)

    return Metric
