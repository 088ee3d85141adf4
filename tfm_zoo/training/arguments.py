"""The options every recipe shares, and how a recipe reads its options: YAML first, command line over it."""

import argparse
import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, NoReturn

import yaml
from transformers import HfArgumentParser

# Those of transformers that need no more than a warm-up and an end, and that of "Attention Is All You Need".
SCHEDULES = (
    "linear",
    "cosine",
    "cosine_with_restarts",
    "polynomial",
    "constant",
    "constant_with_warmup",
    "inverse_sqrt",
    "noam",
)


def option(default: Any, help: str, *aliases: str) -> Any:
    """A dataclass field with a help text and other names that the command line and YAML also accept."""
    return field(default=default, metadata={"help": help, "aliases": [f"--{name}" for name in aliases]})


def fixed(value: Any) -> Any:
    """A dataclass field in the place of an option that a recipe has not: this is its value, always."""
    return field(default=value, init=False)


def check_at_least(arguments: Any, least: Mapping[str, float]) -> None:
    """Refuse options whose values, where they have one, are below these."""
    for name, bound in least.items():
        value = getattr(arguments, name)
        if value is not None and value < bound:
            raise ValueError(f"{name} must be at least {bound}, not {value}")


@dataclass
class LoopArguments:
    """What an Accelerate training loop needs to know, whatever it trains. Names are those of transformers' examples."""

    output_dir: str = option("output", "Folder for the best model, its card, the figures and the checkpoints.")
    overwrite_output_dir: bool = option(False, "Replace the run that `output_dir` holds.")
    seed: int = option(42, "Seed of splits, shuffling, new weights and dropout.")

    per_device_train_batch_size: int = option(16, "Training examples per process and forward pass.")
    per_device_eval_batch_size: int = option(32, "Evaluation examples per process and forward pass.")
    gradient_accumulation_steps: int = option(1, "Forward passes per optimiser step.")
    dataloader_num_workers: int = option(0, "Processes that prepare batches; 0: the training process itself.")

    learning_rate: float | None = option(
        None,
        "Highest learning rate; default: 5e-5, or 1e-3 for a new model. Of the schedule 'noam': a factor; default: 1.",
    )
    weight_decay: float = option(0.01, "AdamW's weight decay; biases and norms are left out.")
    adam_beta1: float = option(0.9, "AdamW's decay of the mean of gradients.")
    adam_beta2: float = option(0.999, "AdamW's decay of the mean of their squares.")
    adam_epsilon: float = option(1e-8, "AdamW's epsilon.")
    max_grad_norm: float = option(1.0, "Gradients are clipped to this norm; 0: no clipping.")
    num_train_epochs: float = option(3.0, "Passes over the training data; may be a fraction.")
    max_train_steps: int | None = option(None, "Optimiser steps; overrides num_train_epochs.", "max_steps")
    lr_scheduler_type: Literal[SCHEDULES] = option(
        "linear",
        "Learning rate schedule: transformers', or 'noam', that of 'Attention Is All You Need', which follows from the"
        " model's width and warmup_steps.",
    )
    warmup_steps: float = option(
        0.1,
        "Steps of linear warm-up (1 or more), or their share of all steps (below 1).",
        "num_warmup_steps",
        "warmup_ratio",
    )
    layerwise_lr_decay: float | None = option(
        None, "Each layer has the learning rate of the one above it times this, embeddings the lowest; default: none."
    )
    freeze: list[str] | None = field(
        default=None,
        metadata={
            "help": "What does not learn: names of modules or parameters, or whole parts of such names, with *, ? and"
            " [...] as in a shell, such as embeddings 'layers.[0-3]'."
        },
    )
    gradual_unfreezing: str | None = option(
        None,
        "Only the head learns at first, and then a layer more after each so many steps, or each 'epoch'; embeddings"
        " last.",
    )
    gradient_checkpointing: bool = option(False, "Recompute activations in the backward pass to save memory.")
    mixed_precision: Literal["no", "fp16", "bf16"] | None = option(
        None, "Precision of the forward pass; default: what `accelerate launch` says."
    )

    logging_steps: int = option(10, "Steps between two entries of the loss.")
    eval_steps: int | None = option(None, "Steps between two evaluations; default: after each epoch.")
    metric_for_best_model: str = option("loss", "Validation figure that picks the best model.")
    greater_is_better: bool | None = option(None, "Default: false for a loss and for perplexity, else true.")
    early_stopping_patience: int | None = option(None, "Stop after this many evaluations without a gain.")

    checkpointing_steps: str | None = option(None, "Steps between two checkpoints, or 'epoch'; default: none.")
    save_total_limit: int | None = option(2, "How many checkpoints to keep.")
    resume_from_checkpoint: str | None = option(
        None, "A checkpoint folder, or 'auto' for the newest complete one in output_dir."
    )

    with_tracking: bool = option(False, "Log to the trackers of Accelerate.")
    report_to: str | None = option(None, "Which tracker (tensorboard, wandb, ...); default: all installed.")

    push_to_hub: bool = option(False, "Upload the best model to the Hub.")
    hub_model_id: str | None = option(None, "Repository to push to; default: the name of output_dir.")
    hub_token: str | None = option(None, "Token for the Hub; default: the one of `hf auth login`.")
    hub_private_repo: bool | None = option(None, "Make the Hub repository private.")
    hub_revision: str | None = option(None, "Branch to push to, made where there is none; default: the main one.")

    def __post_init__(self) -> None:
        check_at_least(
            self,
            {
                "per_device_train_batch_size": 1,
                "per_device_eval_batch_size": 1,
                "gradient_accumulation_steps": 1,
                "dataloader_num_workers": 0,
                "weight_decay": 0,
                "max_grad_norm": 0,
                "adam_beta1": 0,
                "adam_beta2": 0,
                "max_train_steps": 1,
                "warmup_steps": 0,
                "logging_steps": 1,
                "eval_steps": 1,
                "early_stopping_patience": 1,
                "save_total_limit": 1,
            },
        )
        for name in ("learning_rate", "adam_epsilon", "num_train_epochs"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be above 0, not {value}")
        for name in ("adam_beta1", "adam_beta2"):
            if not getattr(self, name) < 1:
                raise ValueError(f"{name} must be below 1, not {getattr(self, name)}")
        for name in ("checkpointing_steps", "gradual_unfreezing"):
            steps = getattr(self, name)
            if steps is not None and steps != "epoch" and not (steps.isdigit() and int(steps) > 0):
                raise ValueError(f"{name} must be a number of steps or 'epoch', not {steps!r}")
        if self.layerwise_lr_decay is not None and not 0 < self.layerwise_lr_decay <= 1:
            raise ValueError(f"layerwise_lr_decay must be above 0 and at most 1, not {self.layerwise_lr_decay}")
        if self.greater_is_better is None:
            self.greater_is_better = not self.metric_for_best_model.endswith(("loss", "perplexity"))

    def check_metric(self, figures: Sequence[str]) -> None:
        """Refuse a `metric_for_best_model` that is not among the figures of an evaluation."""
        if self.metric_for_best_model not in figures:
            raise ValueError(f"metric_for_best_model {self.metric_for_best_model!r}: expected one of {list(figures)}")

    def complete_learning_rate(self, is_new: bool) -> None:
        """Fill in the default learning rate, for a new model or for a checkpoint."""
        if self.learning_rate is None:
            self.learning_rate = 1.0 if self.lr_scheduler_type == "noam" else 1e-3 if is_new else 5e-5

    def is_checkpoint_due(self, step: int, end_of_epoch: bool) -> bool:
        """Whether `checkpointing_steps` asks for a checkpoint after optimiser step `step`."""
        if self.checkpointing_steps is None:
            return False
        return end_of_epoch if self.checkpointing_steps == "epoch" else step % int(self.checkpointing_steps) == 0

    def number_of_steps(self, steps_per_epoch: int) -> tuple[int, int]:
        """Optimiser steps of the whole run, and those of them that warm up."""
        total = self.max_train_steps or max(1, round(self.num_train_epochs * steps_per_epoch))
        warmup = self.warmup_steps if self.warmup_steps >= 1 else self.warmup_steps * total
        return total, int(warmup)


class UniqueKeys(yaml.SafeLoader):
    """Refuses a mapping that has a key twice, of which YAML would take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        keys = [key.value for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} is there twice", node.start_mark)
        return super().construct_mapping(node, deep)


class OneLineParser(HfArgumentParser):
    """Says what is wrong in one line, without the usage of a hundred options before it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def parse_arguments(
    arguments_classes: Sequence[type], argv: Sequence[str] | None = None, default_config: Path | None = None
) -> tuple:
    """Read a recipe's options from `argv` (default: the command line) and the YAML file that `--config` names.

    Returns one object of each class; the options of all of them share one namespace.

    YAML values pass through the same parser as the command line's, which override them. An option or a key
    that does not exist ends the program with an error that names the nearest one that does.

    Args:
        default_config: the YAML file where the options name none.
    """
    parser = OneLineParser(arguments_classes, allow_abbrev=False)
    parser.add_argument("--config", help="YAML file of options; the command line overrides it")
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--config", default=default_config)
    config, argv = first.parse_known_args(argv)

    names = {
        name.lstrip("-"): f.name
        for arguments_class in arguments_classes
        for f in fields(arguments_class)
        if f.init
        for name in (f.name, *f.metadata.get("aliases", ()))
    }
    from_yaml = _yaml_as_argv(parser, config.config, names) if config.config else []
    try:
        *arguments, _, unknown = parser.parse_args_into_dataclasses(
            from_yaml + argv, return_remaining_strings=True, look_for_args_file=False
        )
    except ValueError as error:
        parser.error(str(error))
    if unknown:
        parser.error(f"unknown option {unknown[0]}{_nearest(unknown[0], names)}")
    return tuple(arguments)


def _yaml_as_argv(parser: argparse.ArgumentParser, path: str | Path, names: dict[str, str]) -> list[str]:
    if not Path(path).is_file():
        parser.error(f"--config {path}: no such file")
    try:
        values = yaml.load(Path(path).read_text(encoding="utf-8"), UniqueKeys) or {}
    except yaml.YAMLError as error:
        parser.error(f"--config {path}: not YAML: {' '.join(str(error).split())}")
    if not isinstance(values, dict):
        parser.error(f"--config {path}: expected `option: value` lines, found a {type(values).__name__}")
    argv = []
    for key, value in values.items():
        if key not in names:
            parser.error(f"--config {path}: unknown key {key!r}{_nearest(str(key), names)}")
        if isinstance(value, list):
            argv += [f"--{key}", *map(str, value)]
        elif isinstance(value, dict):
            argv.append(f"--{key}={json.dumps(value)}")
        elif value is not None:
            argv.append(f"--{key}={value}")
    return argv


def _nearest(name: str, names: dict[str, str]) -> str:
    near = difflib.get_close_matches(name.lstrip("-").replace("-", "_").split("=")[0], names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
