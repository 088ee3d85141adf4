"""The options that every recipe shares, and how a recipe reads them: from YAML, and over that from the command line."""

import difflib
import json
import logging
import operator
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn, TypeVar

import yaml
from transformers import HfArgumentParser
from typing_extensions import Self

from tfm_zoo.schedules import SCHEDULES

logger = logging.getLogger(__name__)
AnyOptions = TypeVar("AnyOptions", bound="Options")
#: comparisons by the name of a bound (`at_least=1`); errors use the same names
BOUNDS = {"at_least": operator.ge, "above": operator.gt, "at_most": operator.le, "below": operator.lt}


def option(default: Any, help: str, *aliases: str, **bounds: float) -> Any:
    """A dataclass field with a help text, further names for the command line and YAML, and bounds (`at_least=1`)."""
    metadata = {"help": help, "aliases": [f"--{alias}" for alias in aliases], "bounds": bounds}
    return field(default=default, metadata=OptionMetadata(metadata))


class OptionMetadata(dict):
    """An option's metadata. `HfArgumentParser` passes what `keys` lists on to argparse, which knows no bounds."""

    def keys(self) -> list[str]:
        return [name for name in self if name != "bounds"]


@dataclass(frozen=True)
class Options:
    """Options of a recipe. Raises a `ValueError` for a value outside of its bounds; None is always allowed."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value, bounds = getattr(self, each.name), each.metadata.get("bounds", {})
            if value is not None and not all(BOUNDS[name](value, bound) for name, bound in bounds.items()):
                expected = " and ".join(f"{name.replace('_', ' ')} {bound}" for name, bound in bounds.items())
                raise ValueError(f"{each.name} must be {expected}, not {value}")


def fitted(options: AnyOptions, longest: int, *names: str) -> AnyOptions:
    """The options. Of the named lengths, those above `longest`, the most tokens that the model takes, become that."""
    for name in names:
        length = getattr(options, name)
        if length > longest:
            is_default = length == next(each.default for each in fields(options) if each.name == name)
            setting = f"the default of {name}, {length}," if is_default else f"{name} {length}"
            logger.warning(f"{setting} is more than the model takes: using {longest}")
            options = replace(options, **{name: longest})
    return options


@dataclass(frozen=True)
class LoopArguments(Options):
    """The options of a training loop, whatever it trains. Names are those of transformers' examples."""

    figures: ClassVar[Sequence[str]] = ("loss",)  # the names of the figures that an evaluation gives
    #: options that freeze a part of the model for some time
    freezing_options: ClassVar[Sequence[str]] = ("gradual_unfreezing",)

    output_dir: str = option("output", "Folder for the best model, its card, the figures and the checkpoints.")
    overwrite_output_dir: bool = option(False, "Replace the run that `output_dir` holds.")
    seed: int = option(42, "Seed of splits, shuffling, new weights and dropout.")

    per_device_train_batch_size: int = option(16, "Training examples per process and forward pass.", at_least=1)
    per_device_eval_batch_size: int = option(32, "Evaluation examples per process and forward pass.", at_least=1)
    gradient_accumulation_steps: int = option(1, "Forward passes per optimiser step.", at_least=1)
    dataloader_num_workers: int | None = option(
        None, "Workers per process that prepare batches; default: 0, for a stream up to 4, as cores allow.", at_least=0
    )

    learning_rate: float | None = option(
        None, "Highest learning rate; default: 5e-5, 1e-3 for a new model. For 'noam' a factor, by default 1.", above=0
    )
    weight_decay: float = option(0.01, "AdamW's weight decay; biases and norms are left out.", at_least=0)
    adam_beta1: float = option(0.9, "AdamW's decay of the mean of gradients.", at_least=0, below=1)
    adam_beta2: float = option(0.999, "AdamW's decay of the mean of squared gradients.", at_least=0, below=1)
    adam_epsilon: float = option(1e-8, "AdamW's epsilon.", above=0)
    max_grad_norm: float = option(1.0, "Gradients are clipped to this norm; 0: no clipping.", at_least=0)
    num_train_epochs: float = option(3.0, "Passes over the training data; may be a fraction.", above=0)
    max_train_steps: int | None = option(None, "Optimiser steps; overrides num_train_epochs.", "max_steps", at_least=1)
    lr_scheduler_type: Literal[SCHEDULES] = option(
        "linear", "A schedule of transformers, or 'noam' (Vaswani et al. 2017), set by model width and warmup_steps."
    )
    warmup_steps: float = option(
        0.1, "Steps of warm-up; below 1, a share of all steps.", "num_warmup_steps", "warmup_ratio", at_least=0
    )
    layerwise_lr_decay: float | None = option(
        None, "Learning rate of each layer, as a share of that of the layer above it.", above=0, at_most=1
    )
    freeze: list[str] | None = option(
        None,
        "Parameters that do not learn: names of modules or parameters, or whole parts of such names, with *, ? and"
        " [...] as in a shell, such as embeddings 'layers.[0-3]'.",
    )
    gradual_unfreezing: str | None = option(
        None, "At first only the head learns; every N steps, or 'epoch', one more layer does, the embeddings last."
    )
    gradient_checkpointing: bool = option(False, "Recompute activations in the backward pass to save memory.")
    sync_each_batch: bool = option(
        False, "Sum gradients over processes after each forward pass, not once per step: more traffic, but less memory."
    )
    mixed_precision: Literal["no", "fp16", "bf16"] | None = option(
        None,
        "Precision of the forward pass; default: that of `accelerate launch`. bf16 is faster on GPUs, and on CPUs with"
        " AVX512_BF16 or AMX.",
    )
    torch_compile: bool = option(
        False, "Compile the model: takes minutes, and pays off if batches have few different lengths."
    )
    torch_compile_backend: str = option("inductor", "torch's name for the compiler.")
    ddp_timeout: int = option(
        1800, "Seconds that a process waits for others, such as for the first one to tokenize.", at_least=1
    )

    logging_steps: int = option(10, "Steps between two entries of the loss in the log.", at_least=1)
    eval_steps: int | None = option(None, "Steps between two evaluations; default: after each epoch.", at_least=1)
    metric_for_best_model: str = option("loss", "Validation figure that picks the best model.")
    greater_is_better: bool | None = option(None, "Default: false for a loss and for perplexity, else true.")
    early_stopping_patience: int | None = option(None, "Stop after this many evaluations without a gain.", at_least=1)

    checkpointing_steps: str | None = option(None, "Steps between two checkpoints, or 'epoch'; default: none.")
    save_total_limit: int | None = option(2, "How many checkpoints to keep.", at_least=1)
    resume_from_checkpoint: str | None = option(
        None,
        "A checkpoint, or 'auto': the newest complete one in output_dir. If a run was killed before it saved one, it"
        " begins again.",
    )

    with_tracking: bool = option(False, "Log to the trackers of Accelerate.")
    report_to: str | None = option(None, "Which tracker (tensorboard, wandb, ...); default: all installed.")

    push_to_hub: bool = option(False, "Upload the best model to the Hub.")
    hub_model_id: str | None = option(None, "Repository to push to; default: the name of output_dir.")
    hub_token: str | None = option(None, "Token for the Hub; default: the one of `hf auth login`.")
    hub_private_repo: bool | None = option(None, "Make the Hub repository private.")
    hub_revision: str | None = option(None, "Branch to push to, created if it does not exist; default: the main one.")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("checkpointing_steps", "gradual_unfreezing"):
            steps = getattr(self, name)
            if steps is not None and steps != "epoch" and not (steps.isdecimal() and int(steps) > 0):
                raise ValueError(f"{name} must be a number of steps or 'epoch', not {steps!r}")

    def resolved(self, is_new: bool) -> Self:
        """These options with a learning rate, whose default depends on whether training starts from new weights.

        Raises a `ValueError` if `metric_for_best_model` is none of the figures.
        """
        metric = self.metric_for_best_model
        if metric not in self.figures:
            raise ValueError(f"metric_for_best_model {metric!r}: expected one of {list(self.figures)}")
        usual_rate = 1.0 if self.lr_scheduler_type == "noam" else 1e-3 if is_new else 5e-5
        return replace(self, learning_rate=self.learning_rate or usual_rate)

    @property
    def higher_is_better(self) -> bool:
        """Whether the best model is the one with the highest `metric_for_best_model`."""
        if self.greater_is_better is not None:
            return self.greater_is_better
        return not self.metric_for_best_model.endswith(("loss", "perplexity"))

    def is_checkpoint_due(self, step: int, end_of_epoch: bool) -> bool:
        """Whether `checkpointing_steps` asks for a checkpoint after optimiser step `step`."""
        if self.checkpointing_steps is None:
            return False
        return end_of_epoch if self.checkpointing_steps == "epoch" else step % int(self.checkpointing_steps) == 0

    def number_of_steps(self, steps_per_epoch: int) -> tuple[int, int]:
        """Optimiser steps of the whole run, and how many of them warm up."""
        total = self.max_train_steps or max(1, round(self.num_train_epochs * steps_per_epoch))
        return total, self.warmup_of(total)

    def warmup_of(self, steps: int) -> int:
        """How many of these steps warm up."""
        return int(self.warmup_steps if self.warmup_steps >= 1 else self.warmup_steps * steps)

    def phases(self, total_steps: int, steps_per_epoch: int) -> list[tuple[float, int]]:
        """The highest learning rate and the steps of each phase, a part with its own schedule; by default one phase."""
        return [(self.learning_rate, total_steps)]


class UniqueKeys(yaml.SafeLoader):
    """Refuses a mapping that names a key twice; PyYAML would take the last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        keys = [key.value for key, _ in node.value]
        if twice := [key for key in keys if keys.count(key) > 1]:
            raise yaml.constructor.ConstructorError(None, None, f"{twice[0]!r} is there twice", node.start_mark)
        return super().construct_mapping(node, deep)


class OneLineParser(HfArgumentParser):
    """Says what is wrong in one line, without listing a hundred options first."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def parse_arguments(
    arguments_classes: Sequence[type], argv: Sequence[str] | None = None, default_config: Path | None = None
) -> tuple:
    """Read a recipe's options, an object of each class, from the command line and from a YAML file.

    The file is the one that `--config` names, else `default_config`; the command line overrides it. Options that do not
    exist end the program with an error that names them all, and for each the nearest one that does.
    """
    parser = OneLineParser(arguments_classes, allow_abbrev=False)
    parser.add_argument("--config", default=default_config, help="YAML file of options; the command line overrides it")
    argv = sys.argv[1:] if argv is None else list(argv)
    options = [f for arguments_class in arguments_classes for f in fields(arguments_class) if f.init]
    names = [name.lstrip("-") for f in options for name in (f.name, *f.metadata.get("aliases", ()))]
    config = parser.parse_known_args(argv)[0].config
    try:
        words = [*(_yaml_as_argv(config, names) if config else ()), *argv]
        parsing = {"return_remaining_strings": True, "look_for_args_file": False}
        *arguments, _, unknown = parser.parse_args_into_dataclasses(words, **parsing)
    except ValueError as error:
        parser.error(str(error))
    if unknown:
        given = [
            word.partition("=")[0] for word in unknown if word.startswith("-") and word.lstrip("-")[:1].isalpha()
        ] or unknown[:1]
        near = nearest(given, names, prefix="--")
        parser.error(f"unknown option{'s' * (len(given) > 1)} {', '.join(given)}{near}")
    return tuple(arguments)


def read_yaml(text: str, source: str) -> Any:
    """The values in a text of YAML or JSON; an error names its source."""
    try:
        return yaml.load(text, UniqueKeys)
    except yaml.YAMLError as error:
        raise ValueError(f"{source}: not YAML: {' '.join(str(error).split())}") from None


def _yaml_as_argv(path: str | Path, names: Iterable[str]) -> list[str]:
    """The options of a YAML file as words of a command line."""
    if not Path(path).is_file():
        raise ValueError(f"--config {path}: no such file")
    values = read_yaml(Path(path).read_text(encoding="utf-8"), f"--config {path}") or {}
    if not isinstance(values, dict):
        raise ValueError(f"--config {path}: expected `option: value` lines, found a {type(values).__name__}")
    if unknown := [str(key) for key in values if key not in names]:
        keys = f"key{'s' * (len(unknown) > 1)} {', '.join(map(repr, unknown))}"
        raise ValueError(f"--config {path}: unknown {keys}{nearest(unknown, names)}")
    argv = []
    for key, value in values.items():
        if isinstance(value, list):
            argv += [f"--{key}", *map(str, value)]
        elif isinstance(value, dict):
            argv.append(f"--{key}={json.dumps(value)}")
        elif value is not None:
            argv.append(f"--{key}={value}")
    return argv


def nearest(given: Iterable[str], names: Iterable[str], prefix: str = "") -> str:
    """The end of an error about unknown names: "; did you mean ...?" with the known names nearest to them, each after
    `prefix`. Empty if none is near."""
    plain = [name.lstrip("-").replace("-", "_") for name in given]
    near = {prefix + match: None for name in plain for match in difflib.get_close_matches(name, names, n=1)}
    return f"; did you mean {', '.join(map(repr, near))}?" if near else ""
