"""What a run leaves beside its model: figures, picture, card."""

import json
import shlex
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import accelerate
import datasets
import torch
import transformers
from accelerate.logging import get_logger
from huggingface_hub import EvalResult, ModelCardData
from transformers import PreTrainedModel

from tfm_zoo.hub import push
from tfm_zoo.hub.cards import about_zoo_model, licence_of, table, tags_of, write_model_card
from tfm_zoo.training import generated
from tfm_zoo.training.arguments import LoopArguments
from tfm_zoo.training.checkpoints import TrainState
from tfm_zoo.training.models import ModelArguments
from tfm_zoo.training.sources import DataArguments
from tfm_zoo.visualization import plot_training

logger = get_logger(__name__)

PICTURE = "training_curves.png"


@dataclass
class Report(ABC):
    """A run at its end, and how it is told. A task adds its own parts of the card."""

    args: LoopArguments
    model_args: ModelArguments
    data_args: DataArguments
    model: PreTrainedModel  # the best
    state: TrainState
    results: dict[str, Any]
    num_processes: int

    pipeline_tag: ClassVar[str]
    figure_names: ClassVar[dict[str, str]]  # of the card's table, by their names in the results
    headline: ClassVar[tuple[str, ...]]  # those of them that the card's metadata name

    @abstractmethod
    def introduction(self) -> str:
        """What the model is, and how to use it."""

    @property
    @abstractmethod
    def picture_metrics(self) -> tuple[str, ...]:
        """The figures that are drawn under the losses."""

    @abstractmethod
    def data(self) -> str:
        """What it was trained and judged on."""

    @abstractmethod
    def split_of_the_figures(self) -> str | None:
        """The data set's own split that the card's figures are of; None if it was cut from another."""

    @abstractmethod
    def task_settings(self) -> dict[str, Any]:
        """Rows that the task adds to the table of settings."""

    @property
    def languages(self) -> list[str] | None:
        """Codes of the languages that the model knows, if they are known."""
        return None

    def appendix(self) -> str:
        """What follows the figures."""
        return ""

    def limits(self) -> str:
        """What nobody should expect of the model."""
        if self.is_generated:
            return "It was trained on generated data, to show that training works: it is of no use on any other."
        origin = f", and those of `{shortened(self.base_model)}`, which it started from" if self.base_model else ""
        return (
            f"It has the biases of `{self.dataset}`{origin}. How it does on texts of another kind, or in another"
            " language, has not been measured."
        )

    def finish(self) -> None:
        """Write everything beside the model, push it if that is asked for, and say so."""
        output_dir = Path(self.args.output_dir)
        if not self.write(output_dir):
            logger.warning(f"{output_dir}/README.md was not written by this recipe: it is left as it is")
        logger.info(", ".join(f"{name} {value:.4g}" for name, value in self.results.items()))
        logger.info(f"The best model is in {output_dir}")
        if self.args.push_to_hub:
            logger.info(f"Pushed to {self.push(output_dir)}")

    def write(self, output_dir: Path) -> bool:
        """Write `all_results.json`, `trainer_state.json`, the picture and the card; False if the card is the user's."""
        (output_dir / "all_results.json").write_text(json.dumps(self.results, indent=2) + "\n", encoding="utf-8")
        self.state.write(output_dir)
        plot_training(self.state.log_history, output_dir / PICTURE, *self.picture_metrics)
        return write_model_card(output_dir, self.metadata(), self.text(), self.repository)

    def push(self, output_dir: Path) -> str:
        """Upload `output_dir` without checkpoints and logs; returns the commit's address."""
        args = self.args
        options = {"private": args.hub_private_repo, "revision": args.hub_revision, "token": args.hub_token}
        return push(output_dir, args.hub_model_id, native=not self.is_zoo, **options).commit_url

    @property
    def is_zoo(self) -> bool:
        return self.model.config.model_type.startswith("tfm_")

    @property
    def carries_its_code(self) -> str:
        return "It carries its own code: transformers runs it without `tfm_zoo` installed." if self.is_zoo else ""

    @property
    def remote_code(self) -> str:
        """What a call that loads the model needs beyond its name."""
        return ", trust_remote_code=True" if self.is_zoo else ""

    @property
    def base_model(self) -> str | None:
        """The checkpoint that training started from; None: new weights."""
        return self.model_args.model_name_or_path

    @property
    def repository(self) -> str:
        """What `from_pretrained` is given to load the model."""
        return self.args.hub_model_id or shortened(str(Path(self.args.output_dir)))

    @property
    def name(self) -> str:
        """What the model is called."""
        return (self.args.hub_model_id or Path(self.args.output_dir).resolve().name).split("/")[-1]

    @property
    def dataset(self) -> str:
        return shortened(self.data_args.dataset_name or self.data_args.train_file)

    @property
    def is_generated(self) -> bool:
        return self.data_args.dataset_name == generated.NAME

    @property
    def figures_prefix(self) -> str:
        """Of the results that the card is headed with."""
        return "test" if "test_loss" in self.results else "eval"

    def metadata(self) -> ModelCardData:
        dataset_id = None if self.is_generated else hub_id(self.data_args.dataset_name)
        return ModelCardData(
            language=self.languages,
            library_name="transformers",
            pipeline_tag=self.pipeline_tag,
            license=licence_of(self.base_model) if self.base_model else None,
            tags=tags_of(self.model) if self.is_zoo else None,
            datasets=[dataset_id] if dataset_id else None,
            metrics=list(self.headline),
            base_model=hub_id(self.base_model),
            model_name=self.name,
            eval_results=[
                EvalResult(
                    task_type=self.pipeline_tag,
                    dataset_type=dataset_id or self.dataset,
                    dataset_name=self.dataset,
                    dataset_config=self.data_args.dataset_config_name,
                    dataset_split=self.split_of_the_figures(),
                    metric_type=figure,
                    metric_name=self.figure_names[figure],
                    metric_value=round(self.results[f"{self.figures_prefix}_{figure}"], 4),
                )
                for figure in self.headline
            ],
        )

    def text(self) -> str:
        return f"""
# {self.name}

{self.introduction()}

{about_zoo_model(self.model, self.repository) if self.is_zoo else ""}

## Figures

{self.figures()}

{self.data()}

![{", ".join(("loss", *self.picture_metrics))} against the optimiser step]({PICTURE})

{self.appendix()}

## Training

```sh
{command_line()}
```

{table(self.settings(), ("setting", "value"))}

Examples per second: {self.results["train_samples_per_second"]:.1f} in training,
{self.results["eval_samples_per_second"]:.1f} in evaluation, on {counted(self.num_processes, "process", "processes")}
({device()}).
Versions: transformers {transformers.__version__}, torch {torch.__version__}, accelerate {accelerate.__version__},
datasets {datasets.__version__}.

## Limits and bias

{self.limits()}
"""

    def figures(self) -> str:
        splits = {"eval": "validation", "test": "test"}
        splits = {prefix: name for prefix, name in splits.items() if f"{prefix}_loss" in self.results}
        lines = ["| | " + " | ".join(splits.values()) + " |", "|---" * (len(splits) + 1) + "|"]
        for key, title in self.figure_names.items():
            values = [self.results.get(f"{prefix}_{key}") for prefix in splits]
            lines.append(f"| {title} | " + " | ".join("" if v is None else f"{v:.4f}" for v in values) + " |")
        return "\n".join(lines)

    def batch(self, per_device: object) -> str:
        return (
            f"{per_device} x {self.args.gradient_accumulation_steps} accumulated x"
            f" {counted(self.num_processes, 'process', 'processes')}"
        )

    def settings(self) -> dict[str, Any]:
        args, state = self.args, self.state
        return {
            "model": f"`{type(self.model).__name__}`, {self.model.num_parameters():,} parameters",
            "optimiser": f"AdamW, betas {args.adam_beta1:g} and {args.adam_beta2:g}, epsilon {args.adam_epsilon:g},"
            f" weight decay {args.weight_decay} (not on biases and norms)",
            "learning rate": f"{args.learning_rate}, {args.lr_scheduler_type} schedule, warm-up {args.warmup_steps:g}",
            "batch": self.batch(args.per_device_train_batch_size),
            "steps": f"{state.step} ({f'{args.num_train_epochs:g} epoch(s)' if not args.max_train_steps else 'so many'}"
            f" asked for); the best after {state.best_step}",
            **self.limits_of_learning(),
            **self.task_settings(),
            "gradient clipping": args.max_grad_norm or "none",
            "mixed precision": args.mixed_precision or "as launched",
            "seed": args.seed,
        }

    def limits_of_learning(self) -> dict[str, str]:
        """What learnt less than the rest, or later, or not at all; empty where everything learnt alike."""
        args, rows = self.args, {}
        if args.freeze:
            rows["frozen"] = ", ".join(f"`{pattern}`" for pattern in args.freeze)
        if args.gradual_unfreezing:
            every = "epoch" if args.gradual_unfreezing == "epoch" else f"{args.gradual_unfreezing} steps"
            rows["gradual unfreezing"] = f"a layer more every {every}, from the head downwards"
        if args.layerwise_lr_decay:
            rows["learning rate of a layer"] = f"{args.layerwise_lr_decay:g} times that of what is above it"
        return rows


def command_line(argv: Sequence[str] | None = None) -> str:
    """The command that was given, fit to be published: without the Hub token, and paths cut to their last part."""
    script, *options = sys.argv if argv is None else argv
    words = []
    for option in options:
        name, _, value = option.rpartition("=") if option.startswith("-") else ("", "", option)
        if (words and words[-1] in ("--hub_token", "--hub-token")) or name in ("--hub_token", "--hub-token"):
            value = "..."
        words.append(f"{name}={shortened(value)}" if name else shortened(value))
    return shlex.join(["accelerate", "launch", f"recipes/{Path(script).name}", *words])


def hub_id(name: str | None) -> str | None:
    return None if name is None or Path(name).exists() else name


def shortened(name: str) -> str:
    """A path without the folders that mean nothing on another machine."""
    path = Path(name)
    return path.name if path.is_absolute() or name.startswith("~") or ".." in path.parts else name


def counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def device() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"CPU, {counted(torch.get_num_threads(), 'thread', 'threads')}"
