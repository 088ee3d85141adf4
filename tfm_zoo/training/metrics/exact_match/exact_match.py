"""How many texts are their references, in percent."""

from collections.abc import Sequence

import evaluate
from datasets import Features, Value

TEXT = Value("string")


def exact_match(predictions: Sequence[str], references: Sequence[str]) -> float:
    """The share of texts that are their references, in percent; white space around them does not count."""
    equal = [text.strip() == reference.strip() for text, reference in zip(predictions, references, strict=True)]
    return 100 * sum(equal) / len(equal)


class ExactMatch(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(__doc__, "", Features(predictions=TEXT, references=TEXT))

    def _compute(self, predictions: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        return {"exact_match": exact_match(predictions, references)}
