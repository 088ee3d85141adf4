"""The zoo's own metrics, and what computes several together.

A metric is a function that turns predictions and references into a dict of results. `metric` of `loading.py` makes a
class of `evaluate.Metric` of it. What it is given depends on the task:

| task | a prediction | a reference |
|---|---|---|
| classification: one label, several, a number | a class id, a list of 0 and 1, a float | the same |
| classification of words | a list of tags | the same |
| question answering | a text | a list of texts, each of them right; an empty one, where there is no answer |
| translation, summarization | a text | a text |

The best model has the highest figure, unless its name ends in loss, perplexity, mse or mae. For any other
where less is better, give `--greater_is_better false`.
"""

from .loading import MetricError, Metrics, check_kinds, load_metrics

__all__ = ["MetricError", "Metrics", "check_kinds", "load_metrics"]
