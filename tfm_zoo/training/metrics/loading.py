"""Functions as metrics of `evaluate`; and metrics by name: the zoo's own, a user's folder, a space of the Hub."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
EXAMPLE = SHIPPED["accuracy"]
SPACE = re.compile(r"[\w-]+/[\w.-]+")


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


def whole_numbers(values: Sequence) -> np.ndarray:
    """Class ids or labels. Raises a `ValueError` if they are none, but the numbers of a regression."""
    values = np.asarray(values)
    wrong = values[values != np.rint(values)]
    if wrong.size:
        raise ValueError(f"classes are whole numbers, not {wrong[0]:g}: numbers are measured by mse, mae or pearsonr")
    return values.astype(np.int64)


class Results(NamedTuple):
    """What metrics say of predictions."""

    figures: dict[str, float]
    others: dict[str, Any]  # results that are not a number, such as scores by kind or a signature


@dataclass(frozen=True)
class Metrics:
    """Metrics of the same predictions. Results of one name are told apart by the names of their metrics: `mine_f1`."""

    combined: evaluate.CombinedEvaluations

    def __call__(self, predictions: Sequence, references: Sequence) -> Results:
        """The results for predictions and references (lists, arrays or tensors), an item for each example.

        Every process computes for itself, in memory, and so needs the items of all processes.
        """
        results = Results({}, {})
        own = {f"{name}_{name}": name for name in self.combined.evaluation_module_names}  # `f1_f1` is what `f1` is for
        computed = self.combined.compute(predictions=listed(predictions), references=listed(references))
        for name, value in computed.items():
            value = value.item() if getattr(value, "ndim", None) == 0 else value
            if isinstance(value, Real):
                results.figures[own.get(name, name)] = float(value)
            else:
                results.others[own.get(name, name)] = value
        return results

    def result_names(self, predictions: Sequence, references: Sequence) -> list[str]:
        """The names of the figures, learnt from a few rows before training.

        Raises:
            ValueError: it names a metric that does not work with such rows.
        """
        rows = {"predictions": listed(predictions), "references": listed(references)}
        for name, module in zip(self.combined.evaluation_module_names, self.combined.evaluation_modules, strict=True):
            try:
                results = module.compute(**rows)
                if not isinstance(results, dict):
                    raise TypeError(f"its results are not a dict, but {results!r}")
            except Exception as error:  # a metric is anybody's code
                hint = ""
                if "expected format" in str(error) and np.ndim(rows["predictions"]) == 2:
                    hint = f" (several labels or numbers are lists, which {SHIPPED['mae']} takes)"
                raise ValueError(f"metric {name!r} does not work with {rows}: {error}{hint}") from error
        return list(self(**rows).figures)


def load_metrics(names: Sequence[str], trust_remote_code: bool = False) -> Metrics:
    """The metrics of these names, joined.

    Args:
        names: each is a metric of the zoo (`accuracy`), a folder that holds a file of its own name (`./mine`, and in it
            `mine.py`) or such a file, or a space of the Hub (`user/mine`).
        trust_remote_code: the code of spaces may run here.

    Raises:
        ValueError: a name is none of these (before any is loaded), or a metric cannot be loaded.
    """
    sources: dict[str, str] = {}
    for name in names:
        source = find_metric(name, trust_remote_code)
        if (key := Path(source).stem) in sources:
            raise ValueError(f"metric {name!r}: another one is called {key!r}, too; give each a name of its own")
        sources[key] = source
    # evaluate itself only knows a variable of its own
    evaluate.config.HF_EVALUATE_OFFLINE = evaluate.config.HF_EVALUATE_OFFLINE or constants.HF_HUB_OFFLINE
    with silenced_metrics():
        return Metrics(evaluate.combine({key: load_metric(source) for key, source in sources.items()}))


def find_metric(name: str, trust_remote_code: bool) -> str:
    """What `evaluate.load` finds a metric by: the path of its file, or the name of its space."""
    if name in SHIPPED:
        return str(SHIPPED[name])
    path = Path(name).absolute()
    file = path / f"{path.name}.py" if path.is_dir() else path
    if file.suffix == ".py" and file.is_file():
        return str(file)
    if path.exists():
        raise ValueError(f"metric {name!r}: a folder has to hold a file of its own name, {path.name}.py")
    if SPACE.fullmatch(name) and file.suffix != ".py":
        if not trust_remote_code:
            raise ValueError(
                f"metric {name!r} is not a folder here; to run the code of a space, give trust_remote_code"
            )
        return name
    near = get_close_matches(name.lower(), SHIPPED, n=1)
    hint = f"did you mean {near[0]!r}? Else" if near else f"the zoo has {', '.join(SHIPPED)}; else"
    raise ValueError(f"no metric {name!r}: {hint} name a folder, or a space of the Hub such as evaluate-metric/recall")


def load_metric(source: str) -> evaluate.EvaluationModule:
    """A metric, which keeps what it is given in memory: processes and runs have no files in common."""
    try:
        return evaluate.load(source, keep_in_memory=True)
    except Exception as error:  # a metric is anybody's code
        unknown = isinstance(error, FileNotFoundError) and not Path(source).is_file()
        reason = "the Hub has no such space, or cannot be reached" if unknown else f"{error!r}, unlike {EXAMPLE}"
        lines = [] if unknown or not Path(source).is_file() else Path(source).read_text("utf-8").splitlines()
        if joined := [line for line in lines if re.match(r"import [^#]*,", line)]:
            reason = f"evaluate takes {joined[0].strip()!r} for one module: write a line for each"
        raise ValueError(f"metric {source!r} cannot be loaded: {reason}") from error


def listed(values: Any) -> list:
    """Rows as a list: of numbers or lists of them, where they were a tensor or an array."""
    return values.tolist() if hasattr(values, "tolist") else list(values)
