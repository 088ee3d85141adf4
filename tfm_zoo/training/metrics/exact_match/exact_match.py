"""How many texts are their references, in percent."""

from collections.abc import Sequence

from tfm_zoo.training.metrics.loading import TEXTS, metric


def exact_match(predictions: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """The share of texts that are their references, in percent; white space around them does not count."""
    equal = [text.strip() == reference.strip() for text, reference in zip(predictions, references, strict=True)]
    return {"exact_match": 100 * sum(equal) / len(equal)}


ExactMatch = metric(exact_match, TEXTS)
