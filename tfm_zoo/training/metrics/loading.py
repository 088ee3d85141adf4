"""Metrics by their names: the zoo's own, a user's folder, or a space of the Hub."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import evaluate
from huggingface_hub import constants

from tfm_zoo.quiet import quiet_metrics

#: the files of the zoo's own metrics, by name
SHIPPED = {file.stem: file for file in sorted(Path(__file__).parent.glob("*/*.py")) if file.stem == file.parent.name}
SPACE = re.compile(r"[\w-]+/[\w.-]+")


class Results(NamedTuple):
    """What metrics say of predictions."""

    figures: dict[str, float]
    others: dict[str, Any]  # results that are no number, such as scores by kind or a signature


@dataclass(frozen=True)
class Metrics:
    """Metrics that read the same predictions. Where two have a result of one name, it stands in the results as
    `<metric>_<result>`, of both."""

    combined: evaluate.CombinedEvaluations

    def __call__(self, predictions: Sequence, references: Sequence) -> Results:
        """The results for predictions (lists, arrays or tensors), an item for each example. They have to be those of
        all processes: each process computes for itself, in memory."""
        rows = {"predictions": listed(predictions), "references": listed(references)}
        figures, others = {}, {}
        for name, value in self.combined.compute(**rows).items():
            value = value.item() if getattr(value, "ndim", None) == 0 else value
            if isinstance(value, Real):
                figures[name] = float(value)
            else:
                others[name] = value
        return Results(figures, others)

    def result_names(self, predictions: Sequence, references: Sequence) -> list[str]:
        """The names of the figures, learnt from a few rows before training.

        Raises:
            ValueError: it names a metric that does not work with such rows.
        """
        for name, module in zip(self.combined.evaluation_module_names, self.combined.evaluation_modules, strict=True):
            try:
                results = module.compute(predictions=listed(predictions), references=listed(references))
                if not isinstance(results, dict):
                    raise TypeError(f"its results are no dict, but {results!r}")
            except Exception as error:  # a metric is anybody's code
                tried = f"predictions {listed(predictions)} and references {listed(references)}"
                raise ValueError(f"metric {name!r} fails with {tried}: {error}") from error
        return list(self(predictions, references).figures)


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
            raise ValueError(
                f"metric {name!r}: another one is called {key!r}, too; results are told apart by this name"
            )
        sources[key] = source
    # evaluate itself only knows a variable of its own
    evaluate.config.HF_EVALUATE_OFFLINE = evaluate.config.HF_EVALUATE_OFFLINE or constants.HF_HUB_OFFLINE
    with quiet_metrics():
        return Metrics(evaluate.combine({key: load_metric(source) for key, source in sources.items()}))


def find_metric(name: str, trust_remote_code: bool) -> str:
    """What `evaluate.load` finds a metric by: the path of its file, or the name of its space."""
    if name in SHIPPED:
        return str(SHIPPED[name])
    path = Path(name).resolve()
    file = path / f"{path.name}.py" if path.is_dir() else path
    if file.suffix == ".py" and file.is_file():
        return str(file)
    if path.exists():
        raise ValueError(f"metric {name!r}: a folder has to hold a file of its own name, {path.name}.py")
    if SPACE.fullmatch(name) and file.suffix != ".py":
        if not trust_remote_code:
            raise ValueError(
                f"metric {name!r} is no folder here, and the code of a space on the Hub runs only with trust_remote_code"
            )
        return name
    near = get_close_matches(name.lower(), SHIPPED, n=3)
    hint = f", did you mean {' or '.join(map(repr, near))}?" if near else ""
    others = "a folder, or with trust_remote_code a space of the Hub, such as 'evaluate-metric/recall'"
    raise ValueError(f"no metric {name!r}{hint}: expected one of {', '.join(SHIPPED)}, {others}")


def load_metric(source: str) -> evaluate.EvaluationModule:
    """A metric, which keeps what it is given in memory: processes and runs have no files in common."""
    try:
        return evaluate.load(source, keep_in_memory=True)
    except Exception as error:  # a metric is anybody's code
        here = Path(source).is_file()
        hint = f"a metric looks like {SHIPPED['accuracy']}" if here else "is there such a space, and a network?"
        raise ValueError(f"metric {source!r} cannot be loaded, {hint} ({type(error).__name__}: {error})") from error


def listed(values: Any) -> list:
    """Rows as a list: of numbers or lists of them, where they were a tensor or an array."""
    return values.tolist() if hasattr(values, "tolist") else list(values)
