"""What a comparison of architectures leaves: `comparison.json`, a table in `comparison.md`, and a picture."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jinja2
import torch
import transformers
from torch import Tensor

from tfm_zoo.hub.cards import table
from tfm_zoo.training.comparison.result import Result
from tfm_zoo.training.reports import command_line, counted, device
from tfm_zoo.visualization import TrainedModel, plot_comparison

TEMPLATE = Path(__file__).with_name("card.md")
#: the losses of two guesses: by nothing, and by how frequent each token is
UNIFORM, FREQUENCIES = "uniform guess", "token frequencies"
MARGIN = 0.99  # a loss counts as better if it is below this share of the loss of token frequencies


def write_report(comparison: Any, results: Sequence[Result]) -> None:
    """Write table, figures and picture of the variants that are trained so far into the comparison's `output_dir`."""
    output_dir, levels = Path(comparison.args.output_dir), comparison.levels
    values = {
        "dataset": comparison.dataset,
        "block_size": comparison.block_size,
        "levels": levels,
        "device": device(),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "variants": [asdict(result) | {"outcome": outcome(result, levels)} for result in results],
    }
    (output_dir / "comparison.json").write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    template = jinja2.Template(TEMPLATE.read_text(encoding="utf-8"), trim_blocks=True, keep_trailing_newline=True)
    text = template.render(
        comparison=comparison,
        table=table([row(result, levels) for result in results]),
        first=results[0],
        processes=counted(comparison.accelerator.num_processes, "process", "processes"),
        device=device(),
        on_gpu=torch.cuda.is_available(),
        command=command_line(),
    )
    (output_dir / "comparison.md").write_text(text, encoding="utf-8")
    steps = max(result.steps for result in results)
    title = f"{counted(len(results), 'variant', 'variants')} on {comparison.dataset}, at most {steps} steps"
    plot_comparison([curves(result) for result in results], output_dir / "comparison.png", levels, title)


def row(result: Result, levels: Mapping[str, float]) -> dict[str, str]:
    """A variant's row in the table of the report."""
    return {
        "variant": result.name,
        "what it changes": ", ".join(f"`{name}: {value}`" for name, value in result.changes.items()),
        "parameters": f"{result.parameters:,}",
        "loss, end": shown(result.final_loss, "{:.3f}"),
        "perplexity": shown(result.final_loss and math.exp(result.final_loss), "{:.1f}"),
        "loss, best": shown(result.best_loss, "{:.3f}"),
        "tokens/s": shown(result.tokens_per_second, "{:,.0f}"),
        "memory": shown(result.peak_mebibytes, "{:,.0f} MiB"),
        "steps": str(result.steps),
        "outcome": outcome(result, levels),
    }


def outcome(result: Result, levels: Mapping[str, float]) -> str:
    """How the training of a variant ended, in words."""
    if result.diverged_at is not None:
        return f"diverged at step {result.diverged_at}"
    is_better = result.final_loss < MARGIN * levels[FREQUENCIES]
    return f"{'better' if is_better else 'no better'} than {FREQUENCIES}"


def shown(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def curves(result: Result) -> TrainedModel:
    """A result as the picture takes it."""
    training, validation = (
        [(entry["step"] * result.tokens_per_step, entry[key]) for entry in result.log_history if key in entry]
        for key in ("loss", "eval_loss")
    )
    costs = {
        "tokens per second, in training": result.tokens_per_second,
        "peak memory of training, MiB": result.peak_mebibytes,
        "parameters": result.parameters,
    }
    return TrainedModel(result.name, training, validation, costs, diverged=result.diverged_at is not None)


def loss_of_frequencies(train: Tensor, validation: Tensor, vocab_size: int) -> float:
    """The loss, in nats, of guessing each token of `validation` only by how frequent it is in `train`."""
    counts = torch.bincount(train, minlength=vocab_size) + 1.0  # one more of each, so that none is impossible
    return -float((counts / counts.sum()).log()[validation.long()].mean())
