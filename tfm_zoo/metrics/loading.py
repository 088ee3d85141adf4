"""The zoo's metrics by name, others as `evaluate` loads them, and the results of several together."""

import inspect
import re
from collections import Counter
from collections.abc import Callable, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import evaluate
from datasets import Features, List, Value
from huggingface_hub import constants

from tfm_zoo.metrics import of_numbers, of_tags, of_texts
from tfm_zoo.utils.errors import in_one_line
from tfm_zoo.utils.quiet import silenced_metrics


class MetricError(ValueError):
    """A metric that is not there, or does not work."""


# What predictions and references can be. As whole numbers, evaluate would cut off what is behind the point.
NUMBERS = Features(predictions=Value("float64"), references=Value("float64"))
LISTS_OF_NUMBERS = Features(predictions=List(Value("float64")), references=List(Value("float64")))
TEXTS = Features(predictions=Value("string"), references=Value("string"))
ANSWERS = Features(predictions=Value("string"), references=List(Value("string")))
TAGS = Features(predictions=List(Value("string")), references=List(Value("string")))


def metric(compute: Callable[[Sequence, Sequence], dict[str, Any]], *kinds: Features) -> type[evaluate.Metric]:
    """A function as a metric of `evaluate`. It takes predictions and references, an item for each example, and returns
    results by their names. The first of the `kinds`, such as `TEXTS`, that fits the items is taken."""

    inspect.signature(compute).bind((), ())  # a `TypeError` now, and not after an epoch

    class Metric(evaluate.Metric):
        takes = kinds

        def _info(self) -> evaluate.MetricInfo:
            return evaluate.MetricInfo(compute.__doc__, "", kinds[0] if len(kinds) == 1 else list(kinds))

        def _compute(self, predictions: Sequence, references: Sequence) -> dict[str, Any]:
            return compute(predictions, references)

    return Metric


#: the zoo's own, by name
SHIPPED = {
    "accuracy": metric(of_numbers.accuracy, NUMBERS, LISTS_OF_NUMBERS),
    "chrf": metric(of_texts.chrf, TEXTS),
    "exact_match": metric(of_texts.exact_match, TEXTS),
    "f1": metric(of_numbers.f1, NUMBERS, LISTS_OF_NUMBERS),
    "mae": metric(of_numbers.mae, NUMBERS, LISTS_OF_NUMBERS),
    "mse": metric(of_numbers.mse, NUMBERS, LISTS_OF_NUMBERS),
    "pearsonr": metric(of_numbers.pearsonr, NUMBERS),
    "rouge": metric(of_texts.rouge, TEXTS),
    "sacrebleu": metric(of_texts.bleu, TEXTS),
    "seqeval": metric(of_tags.seqeval, TAGS),
    "spearmanr": metric(of_numbers.spearmanr, NUMBERS),
    "squad": metric(of_texts.squad, ANSWERS),
}


class Results(NamedTuple):
    """What metrics say of predictions."""

    numbers: dict[str, float]
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
            except (Exception, SystemExit) as error:  # a metric is anybody's code
                shown, reason = {side: each[:2] for side, each in rows.items()}, in_one_line(error)
                raise MetricError(f"metric {name!r} does not work with {shown}: {reason}") from error
        count = Counter(result for _, result, _ in found)
        named = {r if count[r] == 1 or r == name else f"{name}_{r}": value for name, r, value in found}
        numbers = {name: float(value) for name, value in named.items() if isinstance(value, Real)}
        return Results(numbers, {name: value for name, value in named.items() if name not in numbers})


def load_metrics(names: Sequence[str], trust_remote_code: bool = False) -> Metrics:
    """The metrics of these names: of the zoo (`accuracy`), a folder that holds a file of its own name (`./mine`, and in
    it `mine.py`) or such a file, or, with `trust_remote_code`, a space of the Hub (`user/mine`)."""
    named = {Path(name).absolute().stem: name for name in names}
    if len(named) < len(names):
        raise MetricError(f"metrics {', '.join(names)}: two have the same last name; give each one of its own")
    return Metrics({short: load_metric(name, trust_remote_code) for short, name in named.items()})


def check_kinds(names: Sequence[str], usual: str) -> None:
    """Refuse a metric of the zoo that takes something else than a task's usual one."""
    fit = [name for name, each in SHIPPED.items() if any(kind in SHIPPED[usual].takes for kind in each.takes)]
    for name in names:
        if name in SHIPPED and name not in fit:
            raise MetricError(f"metric {name!r} is of other predictions than this task's: give {', '.join(fit)}")


def load_metric(name: str, trust_remote_code: bool) -> evaluate.EvaluationModule:
    """One of the zoo's metrics, or what `evaluate` loads from a file or a space."""
    if name in SHIPPED:
        return SHIPPED[name](keep_in_memory=True)
    path = Path(name).absolute()
    file = path / f"{path.name}.py" if path.is_dir() else path
    is_file = file.is_file() and file.suffix == ".py"
    if not is_file and not (trust_remote_code and re.fullmatch(r"[\w-]+/[\w.-]+", name) and not path.exists()):
        others = "a folder with a file of its own name (mine/mine.py), or, with trust_remote_code, a space of the Hub"
        raise MetricError(f"no metric {name!r}: give {', '.join(SHIPPED)}, {others}")
    evaluate.config.HF_EVALUATE_OFFLINE |= constants.HF_HUB_OFFLINE  # evaluate itself only knows a variable of its own
    try:
        with silenced_metrics():
            module = evaluate.load(str(file) if is_file else name, keep_in_memory=True)
        sides = {"predictions", "references"} & {*module._feature_names()}  # `compute` passes on these alone
        inspect.signature(module._compute).bind(**dict.fromkeys(sides))
        return module
    except (Exception, SystemExit) as error:  # a metric is anybody's code
        raise MetricError(f"metric {name!r} cannot be loaded: {error!r}; it needs an evaluate.Metric") from error
