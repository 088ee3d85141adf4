"""What a comparison of architectures leaves: `comparison.json`, a table in `comparison.md`, a picture."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from tfm_zoo.training.comparison import Result
from tfm_zoo.training.reports import command_line, counted, device
from tfm_zoo.visualization import TrainedModel, plot_comparison

NAME = "comparison"
# Losses of those who know less: who knows nothing, and who knows how frequent each token is.
UNIFORM, FREQUENCIES = "uniform guess", "token frequencies"
MARGIN = 0.99  # of the latter: a loss that is not below it is no better


@dataclass
class ComparisonReport:
    """What holds for all variants, and what their losses are to be held against."""

    dataset: str
    notes: Sequence[str]  # on the data
    block_size: int
    num_processes: int
    levels: dict[str, float]  # of `UNIFORM` and `FREQUENCIES`

    def write(self, output_dir: Path, results: Sequence[Result]) -> None:
        """Tell of those that are trained so far."""
        values = {
            "dataset": self.dataset,
            "block_size": self.block_size,
            "levels": self.levels,
            "device": device(),
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
            "variants": [asdict(result) | {"outcome": self.outcome(result)} for result in results],
        }
        (output_dir / f"{NAME}.json").write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
        (output_dir / f"{NAME}.md").write_text(self.text(results), encoding="utf-8")
        steps = max(result.steps for result in results)
        title = f"{counted(len(results), 'variant', 'variants')} on {self.dataset}, at most {steps} steps"
        plot_comparison([trained(result) for result in results], output_dir / f"{NAME}.png", self.levels, title)

    def outcome(self, result: Result) -> str:
        """How it ended, in words."""
        if result.diverged_at is not None:
            return f"diverged at step {result.diverged_at}"
        learnt = result.final_loss < MARGIN * self.levels[FREQUENCIES]
        return f"{'better' if learnt else 'no better'} than {FREQUENCIES}"

    def text(self, results: Sequence[Result]) -> str:
        return f"""# A comparison of architectures

{self.table(results)}

Losses are those of the validation text of `{self.dataset}`, in nats per token; perplexity is the exponential of the one
at the end. A uniform guess has {self.levels[UNIFORM]:.3f}, and guessing by no more than how frequent each token is in
the training text {self.levels[FREQUENCIES]:.3f}. {" ".join(self.notes)}

Speed and memory are those of training, on {counted(self.num_processes, "process", "processes")} ({device()}): tokens
by the median step, without evaluation; {memory(results[0])}.
Every variant had the same data in the same order, {results[0].tokens_per_step:,} tokens a step in blocks of
{self.block_size}, and the same seed.

![Losses against tokens, speed, memory and parameters of each variant]({NAME}.png)

```sh
{command_line()}
```
"""

    def table(self, results: Sequence[Result]) -> str:
        header = "| variant | what it changes | parameters | loss, end | perplexity | loss, best | tokens/s | memory |"
        lines = [f"{header} steps | outcome |", "|---" * 10 + "|"]
        for result in results:
            cells: list[Any] = [
                result.name,
                ", ".join(f"`{name}: {value}`" for name, value in result.changes.items()),
                f"{result.parameters:,}",
                _shown(result.final_loss, "{:.3f}"),
                _shown(result.final_loss and math.exp(result.final_loss), "{:.1f}"),
                _shown(result.best_loss, "{:.3f}"),
                _shown(result.tokens_per_second, "{:,.0f}"),
                _shown(result.peak_memory and result.peak_memory / 2**20, "{:,.0f} MiB"),
                result.steps,
                self.outcome(result),
            ]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
        return "\n".join(lines)


def memory(some: Result) -> str:
    """What the column of memory says."""
    if some.peak_memory is None:
        return "memory is not known on this system"
    if torch.cuda.is_available():
        return "memory is the most that torch's tensors took, on the first GPU"
    return "memory is the most that the first process had in memory, above what it had before the model was made"


def trained(result: Result) -> TrainedModel:
    """A result as the picture takes it."""
    curves = {
        kind: [(entry["step"] * result.tokens_per_step, entry[key]) for entry in result.log_history if key in entry]
        for kind, key in (("training", "loss"), ("validation", "eval_loss"))
    }
    costs = {
        "tokens per second, in training": result.tokens_per_second,
        "peak memory of training, MiB": result.peak_memory and result.peak_memory / 2**20,
        "parameters": result.parameters,
    }
    return TrainedModel(result.name, costs=costs, diverged=result.diverged_at is not None, **curves)


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
