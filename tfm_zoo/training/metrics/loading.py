"""Functions as metrics of `evaluate`, and metrics by name."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import evaluate
import numpy as np
from datasets import Features, List, Value
from huggingface_hub import constants

from tfm_zoo.utils.quiet import silenced_metrics

# What predictions and references can be. As whole numbers, evaluate would cut off what is behind the point.
NUMBERS = Features(predictions=Value("float64"), references=Value("float64"))
LISTS_OF_NUMBERS = Features(predictions=List(Value("float64")), references=List(Value("float64")))
TEXTS = Features(predictions=Value("string"), references=Value("string"))
#: the files of the zoo's own metrics, by name
SHIPPED = {file.stem: file for file in sorted(Path(__file__).parent.glob("*/*.py")) if file.stem == file.parent.name}


def metric(compute: Callable[[Sequence, Sequence], dict[str, Any]], *kinds: Features) -> type[evaluate.Metric]:
    """The class that `evaluate.load` looks for. `compute` takes predictions and references, an item for each example,
    and returns results by their names. The first of the `kinds`, such as `TEXTS`, that fits the items is taken."""

    class Metric(evaluate.Metric):
        def _info(self) -> evaluate.MetricInfo:
            return evaluate.MetricInfo(compute.__doc__, "", kinds[0] if len(kinds) == 1 else list(kinds))

        def _compute(self, predictions: Sequence, references: Sequence) -> dict[str, Any]:
            return compute(predictions, references)

    return Metric


def whole_numbers(values: Sequence) -> np.ndarray:
    """Class ids or labels. Refuses a number that is not whole: it is that of a regression."""
    values = np.asarray(values)
    wrong = values[values != np.rint(values)]
    if wrong.size:
        raise ValueError(f"classes are whole numbers, not {wrong[0]:g}: numbers are measured by mse, mae or pearsonr")
    return values.astype(np.int64)


class Results(NamedTuple):
    """What metrics say of predictions."""

    figures: dict[str, float]
    others: dict[str, Any]  # results that are not a number, such as scores by kind or a signature


class Metrics(dict[str, evaluate.EvaluationModule]):
    """Metrics of the same predictions, by name. Every process computes them for itself, from the items of all."""

    def __call__(self, predictions: Sequence, references: Sequence) -> Results:
        """The results for predictions and references (lists, arrays or tensors), an item for each example. Those of one
        name are told apart by the names of their metrics: `mine_f1`."""
        rows, found = {"predictions": predictions, "references": references}, []
        rows = {side: each.tolist() if hasattr(each, "tolist") else list(each) for side, each in rows.items()}
        for name, module in self.items():
            try:
                found += [(name, result, value) for result, value in module.compute(**rows).items()]
            except Exception as error:  # a metric is anybody's code
                shown, reason = {side: each[:2] for side, each in rows.items()}, " ".join(str(error).split())
                raise ValueError(f"metric {name!r} does not work with {shown}: {reason}") from error
        count = Counter(result for _, result, _ in found)
        named = {r if count[r] == 1 or r == name else f"{name}_{r}": value for name, r, value in found}
        figures = {name: float(value) for name, value in named.items() if isinstance(value, Real)}
        return Results(figures, {name: value for name, value in named.items() if name not in figures})


def load_metrics(names: Sequence[str], trust_remote_code: bool = False) -> Metrics:
    """The metrics of these names: of the zoo (`accuracy`), a folder that holds a file of its own name (`./mine`, and in
    it `mine.py`) or such a file, or, with `trust_remote_code`, a space of the Hub (`user/mine`)."""
    evaluate.config.HF_EVALUATE_OFFLINE |= constants.HF_HUB_OFFLINE  # evaluate itself only knows a variable of its own
    metrics, advice = Metrics(), f"unlike {SHIPPED['accuracy']}, whose imports stand on lines of their own"
    sources = [find_metric(name, trust_remote_code) for name in names]
    if len({Path(source).stem for source in sources}) < len(sources):
        raise ValueError(f"metrics {', '.join(names)}: two have the same last name; give each one of its own")
    for source in sources:
        try:
            with silenced_metrics():
                metrics[Path(source).stem] = evaluate.load(source, keep_in_memory=True)
        except Exception as error:
            why = "" if isinstance(error, OSError) else f", {advice}"  # which is about its code
            raise ValueError(f"metric {source!r} cannot be loaded: {error!r}{why}") from error
    return metrics


def find_metric(name: str, trust_remote_code: bool) -> str:
    """What `evaluate.load` finds a metric by: the path of its file, or the name of its space."""
    path = Path(SHIPPED.get(name, name)).absolute()
    file = path / f"{path.name}.py" if path.is_dir() else path
    if file.is_file() and file.suffix == ".py":
        return str(file)
    if trust_remote_code and re.fullmatch(r"[\w-]+/[\w.-]+", name) and not path.exists():
        return name
    near = get_close_matches(name.lower(), SHIPPED, n=1)
    meant = f"did you mean {near[0]!r}?" if near else f"the zoo has {', '.join(SHIPPED)}."
    raise ValueError(
        f"no metric {name!r}: {meant} Else name a folder that holds a file of its own name (mine/mine.py), or, with"
        " trust_remote_code, a space of the Hub (evaluate-metric/recall)"
    )
