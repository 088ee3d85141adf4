"""What a classifier predicts; functions as metrics of `evaluate`; and metrics by name."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from itertools import chain
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import evaluate
import numpy as np
from datasets import Features, List, Value
from huggingface_hub import constants
from torch import Tensor

from tfm_zoo.utils.quiet import silenced_metrics

Array = TypeVar("Array", np.ndarray, Tensor)
# What predictions and references can be. As whole numbers, evaluate would cut off what is behind the point.
NUMBERS = Features(predictions=Value("float64"), references=Value("float64"))
LISTS_OF_NUMBERS = Features(predictions=List(Value("float64")), references=List(Value("float64")))
TEXTS = Features(predictions=Value("string"), references=Value("string"))

#: the files of the zoo's own metrics, by name
SHIPPED = {file.stem: file for file in sorted(Path(__file__).parent.glob("*/*.py")) if file.stem == file.parent.name}


def predicted(logits: Array, problem_type: str) -> Array:
    """What logits `(rows, labels)` predict: by the problem, in transformers' words, the class of each row, `(rows,)`; 1
    for each label that is likelier than not, `(rows, labels)`; or numbers, `(rows,)` if there is one a row."""
    if problem_type == "single_label_classification":
        return logits.argmax(-1)
    if problem_type == "multi_label_classification":
        return (logits > 0) * 1
    return logits[:, 0] if logits.shape[-1] == 1 else logits


def metric(compute: Callable[[Sequence, Sequence], dict[str, Any]], *kinds: Features) -> type[evaluate.Metric]:
    """The class that `evaluate.load` looks for. `compute` takes predictions and references, an item for each example,
    and returns results by their names. The first of the `kinds`, such as `TEXTS`, that fits the items is taken."""

    class Metric(evaluate.Metric):
        def _info(self) -> evaluate.MetricInfo:
            return evaluate.MetricInfo(compute.__doc__, "", kinds[0] if len(kinds) == 1 else list(kinds))

        def _compute(self, predictions: Sequence, references: Sequence) -> dict[str, Any]:
            return compute(predictions, references)

    return Metric


class Results(NamedTuple):
    """What metrics say of predictions."""

    figures: dict[str, float]
    others: dict[str, Any]  # results that are not a number, such as scores by kind or a signature


class Metrics(dict[str, evaluate.EvaluationModule]):
    """Metrics of the same predictions, by name. Every process computes them for itself, from the items of all."""

    def __call__(self, predictions: Sequence, references: Sequence) -> Results:
        """The results for predictions and references (lists, arrays or tensors), an item for each example. Those of one
        name are told apart by the names of their metrics: `mine_f1`. An error names the metric and the first rows."""
        rows = {"predictions": predictions, "references": references}
        rows = {side: each.tolist() if hasattr(each, "tolist") else list(each) for side, each in rows.items()}
        found = {}
        for name, module in self.items():
            try:
                found[name] = {**module.compute(**rows)}
            except Exception as error:  # a metric is anybody's code
                shown, reason = {side: each[:2] for side, each in rows.items()}, " ".join(str(error).split())
                raise ValueError(f"metric {name!r} does not work with {shown}: {reason}") from error
        metrics_with = Counter(chain.from_iterable(found.values()))
        figures, others = {}, {}
        for name, values in found.items():
            for result, value in values.items():
                title = result if metrics_with[result] == 1 or result == name else f"{name}_{result}"
                if isinstance(value, Real):
                    figures[title] = float(value)
                else:
                    others[title] = value
        return Results(figures, others)

    def result_names(self, predictions: Sequence, references: Sequence) -> list[str]:
        """The names of the figures, learnt from a few rows before training."""
        return list(self(predictions, references).figures)


def load_metrics(names: Sequence[str], trust_remote_code: bool = False) -> Metrics:
    """The metrics of these names: of the zoo (`accuracy`), a folder that holds a file of its own name (`./mine`, and in
    it `mine.py`) or such a file, or, with `trust_remote_code`, a space of the Hub (`user/mine`)."""
    sources = [find_metric(name, trust_remote_code) for name in names]
    for stem, number in Counter(Path(source).stem for source in sources).items():
        if number > 1:
            raise ValueError(f"metrics {', '.join(names)}: {number} are called {stem!r}; give each a name of its own")
    evaluate.config.HF_EVALUATE_OFFLINE |= constants.HF_HUB_OFFLINE  # evaluate itself only knows a variable of its own
    metrics = Metrics()
    for source in sources:
        try:
            with silenced_metrics():
                metrics[Path(source).stem] = evaluate.load(source, keep_in_memory=True)
        except Exception as error:
            reason = f"{error!r}, unlike {SHIPPED['accuracy']}, whose imports stand on lines of their own"
            if isinstance(error, FileNotFoundError) and not Path(source).is_file():
                reason = "the Hub has no such space, or cannot be reached"
            raise ValueError(f"metric {source!r} cannot be loaded: {reason}") from error
    return metrics


def find_metric(name: str, trust_remote_code: bool) -> str:
    """What `evaluate.load` finds a metric by: the path of its file, or the name of its space."""
    path = Path(SHIPPED.get(name, name)).absolute()
    file = path / f"{path.name}.py" if path.is_dir() else path
    if file.is_file() and file.suffix == ".py":
        return str(file)
    if trust_remote_code and re.fullmatch(r"[\w-]+/[\w.-]+", name) and not path.exists() and file.suffix != ".py":
        return name
    near = get_close_matches(name.lower(), SHIPPED, n=1)
    meant = f"did you mean {near[0]!r}?" if near else f"the zoo has {', '.join(SHIPPED)}."
    raise ValueError(
        f"no metric {name!r}: {meant} Else name a folder that holds a file of its own name (mine/mine.py), or, with"
        " trust_remote_code, a space of the Hub (evaluate-metric/recall)"
    )
