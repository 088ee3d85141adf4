"""What a comparison leaves: a result of each variant; `comparison.json`, a table in `comparison.md`, and a picture."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import torch
import transformers
from torch import Tensor
from transformers import PreTrainedConfig

from tfm_zoo.data.splits import pluralize
from tfm_zoo.hub.cards import table
from tfm_zoo.training.checkpoints import TrainState
from tfm_zoo.training.report import device
from tfm_zoo.utils.locking import write_json
from tfm_zoo.utils.published import command_line
from tfm_zoo.visualization import TrainedModel, plot_comparison

TEMPLATE = Path(__file__).with_name("results.md.j2")
#: names of two guesses, whose losses are drawn: all tokens alike, and each as often as it occurs
UNIFORM, FREQUENCIES = "uniform guess", "token frequencies"
FILE = "result.json"  # of a variant
CONFIG = "config."  # begins the names of settings that are fields of a configuration
MARGIN = 0.99  # a loss counts as better if it is below this share of the loss of token frequencies


@dataclass
class Result:
    """How the training of a variant went. Losses are those of the validation text, in nats per token."""

    name: str
    changes: dict[str, Any]
    parameters: int
    steps: int
    tokens_per_step: int
    final_loss: float | None  # None: it diverged
    best_loss: float | None  # None: it diverged before the first evaluation
    diverged_at: int | None  # the step after which the loss exploded
    tokens_per_second: float | None  # in training, by the median step
    peak_memory: int | None  # bytes, in training, of the main process
    settings: dict[str, Any]  # all that the result depends on
    log_history: list[dict[str, Any]] = field(default_factory=list)

    @property
    def peak_mebibytes(self) -> float | None:
        return self.peak_memory and self.peak_memory / 2**20

    def write(self, folder: Path) -> None:
        """Write the last file of a variant, in one move: a folder that has it is finished."""
        folder.mkdir(parents=True, exist_ok=True)
        values = {name: value for name, value in asdict(self).items() if name != "log_history"}
        write_json(folder / FILE, values, indent=1)

    @classmethod
    def read(cls, folder: Path) -> "Result | None":
        """The result in a folder; `None` if its variant is not finished."""
        path = folder / FILE
        if not path.is_file():
            return None
        return cls(**json.loads(path.read_text(encoding="utf-8")), log_history=TrainState.read(folder).log_history)

    def changes_to(self, settings: Mapping[str, Any], config_class: type[PreTrainedConfig]) -> str:
        """How these settings differ from those of the result, in words."""
        fields = {name.removeprefix(CONFIG): value for name, value in self.settings.items() if name.startswith(CONFIG)}
        options = {name: value for name, value in self.settings.items() if not name.startswith(CONFIG)}
        # The fields as the class writes them now: an earlier version may have left out a default.
        recorded = options | as_json(settings_of(config_class.from_dict(fields)))
        pairs = {name: (recorded.get(name), settings.get(name)) for name in recorded | settings}
        return ", ".join(f"{name} was {old} and is {new}" for name, (old, new) in pairs.items() if old != new)


def settings_of(config: PreTrainedConfig) -> dict[str, Any]:
    """The fields of a configuration, as `config.json` holds them, under names that no option has."""
    fields = config.to_diff_dict().items()
    return {f"{CONFIG}{name}": value for name, value in fields if name != "transformers_version"}


def as_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as JSON reads them again: tuples as lists, all keys as texts."""
    return json.loads(json.dumps(values))


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
        processes=pluralize(comparison.accelerator.num_processes, "process"),
        device=device(),
        on_gpu=torch.cuda.is_available(),
        command=command_line(),
    )
    (output_dir / "comparison.md").write_text(text, encoding="utf-8")
    steps = max(result.steps for result in results)
    title = f"{pluralize(len(results), 'variant')} on {comparison.dataset}, at most {steps} steps"
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
    counts = torch.bincount(train, minlength=vocab_size) + 1.0  # one more of each, so that no token is impossible
    return -float((counts / counts.sum()).log()[validation.long()].mean())
