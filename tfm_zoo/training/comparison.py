"""Training variants of an architecture under one budget, on the same data and seed, and noting what each costs."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.logging import get_logger
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerBase

from tfm_zoo.training.arguments import LoopArguments, fixed, option
from tfm_zoo.training.checkpoints import TrainState
from tfm_zoo.training.corpora import Blocks
from tfm_zoo.training.language_modeling import count_predicted, evaluate_language_model
from tfm_zoo.training.language_models import model_of
from tfm_zoo.training.loop import Loop, Task
from tfm_zoo.training.measuring import PeakMemory, Stopwatch
from tfm_zoo.training.reports import device
from tfm_zoo.training.runs import start_trackers
from tfm_zoo.training.sources import digest
from tfm_zoo.training.variants import Variant

logger = get_logger(__name__)

RESULT = "result.json"
# Of the options, those that change neither the figures of a variant nor what it leaves.
IRRELEVANT = ("output_dir", "overwrite_output_dir", "with_tracking", "report_to", "dataloader_num_workers")
EXPLODED = 2.0  # times the loss of a uniform guess


@dataclass
class ComparisonArguments(LoopArguments):
    """What training several variants needs to know. Every variant is trained from its beginning to its end."""

    output_dir: str = option("output", "Folder for the table, the picture, and a folder of each variant.")
    overwrite_output_dir: bool = option(False, "Train again what `output_dir` holds the results of.")
    max_train_steps: int = option(200, "Optimiser steps of each variant: the budget.", "max_steps")
    eval_steps: int | None = option(None, "Steps between two evaluations; default: a tenth of the budget.")
    save_models: bool = option(False, "Keep the best model of each variant, by its validation loss.")

    # What would make budgets unlike, goes on from something, or tells of a single model.
    num_train_epochs: float = fixed(3.0)
    metric_for_best_model: str = fixed("loss")
    greater_is_better: bool | None = fixed(None)
    early_stopping_patience: int | None = fixed(None)
    freeze: list[str] | None = field(default=None, init=False)
    gradual_unfreezing: str | None = fixed(None)
    checkpointing_steps: str | None = fixed(None)
    save_total_limit: int | None = fixed(None)
    resume_from_checkpoint: str | None = fixed(None)
    push_to_hub: bool = fixed(False)
    hub_model_id: str | None = fixed(None)
    hub_token: str | None = fixed(None)
    hub_private_repo: bool | None = fixed(None)
    hub_revision: str | None = fixed(None)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.eval_steps = self.eval_steps or max(1, self.max_train_steps // 10)
        self.complete_learning_rate(is_new=True)


@dataclass
class Result:
    """How a variant did. Losses are of the validation text, in nats per token."""

    name: str
    changes: dict[str, Any]
    parameters: int
    steps: int
    tokens_per_step: int
    final_loss: float | None  # None: it diverged
    best_loss: float | None  # None: before the first evaluation
    diverged_at: int | None  # the step after which that was seen
    tokens_per_second: float | None  # of training, by its median step
    peak_memory: int | None  # bytes, of training, in the main process
    settings: dict[str, Any]  # what gives another result if it is another
    log_history: list[dict[str, Any]] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        """The last file of a variant: with it, the variant is finished."""
        values = {name: value for name, value in asdict(self).items() if name != "log_history"}
        unfinished = folder / f".{RESULT}"
        unfinished.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
        unfinished.replace(folder / RESULT)

    @classmethod
    def read(cls, folder: Path) -> "Result | None":
        """None for a variant that is not finished."""
        path = folder / RESULT
        if not path.is_file():
            return None
        return cls(**json.loads(path.read_text(encoding="utf-8")), log_history=TrainState.read(folder).log_history)


class VariantLoop(Loop):
    """A loop that measures what training costs, keeps no model unless asked to, and ends where the loss explodes."""

    def __init__(self, accelerator: Accelerator, args: ComparisonArguments, task: Task, memory: PeakMemory):
        super().__init__(accelerator, args, task)
        self.memory, self.stopwatch = memory, Stopwatch(accelerator.device)
        self.limit = EXPLODED * math.log(task.model.config.vocab_size)
        self.optimizer.optimizer.register_step_post_hook(lambda *_: self.stopwatch.lap())

    def run(self) -> None:
        self.go_on()
        try:
            super().run()
        finally:
            self.memory.stop()

    def evaluate(self) -> None:
        self.memory.stop()
        super().evaluate()
        self.go_on()

    def go_on(self) -> None:
        """Measure from now on."""
        self.memory.start()
        self.stopwatch.restart()

    def keep(self) -> None:
        if self.args.save_models:
            super().keep()

    def log(self, values: dict[str, float]) -> None:
        loss = values.get("loss", values.get("eval_loss"))
        if math.isfinite(loss):
            super().log(values)
        if not loss <= self.limit:
            raise FloatingPointError(f"the loss is {loss} at step {self.state.step}")


@dataclass
class Comparison:
    """What all variants have in common, which is everything but their architecture.

    Args:
        tokens: the splits "train" and "validation", each `(tokens,)`.
    """

    args: ComparisonArguments
    tokenizer: PreTrainedTokenizerBase
    tokens: dict[str, Tensor]
    block_size: int
    max_train_samples: int | None = None
    max_eval_samples: int | None = None

    def blocks(self, split: str, limit: int | None, multiple_of: int = 1) -> Blocks:
        filling = self.tokenizer.eos_token_id or 0
        return Blocks(self.tokens[split], self.block_size, filling, limit, multiple_of)

    def settings(self, accelerator: Accelerator, variant: Variant) -> dict[str, Any]:
        """What gives another result if it is another."""
        options = {
            f.name: getattr(variant.args, f.name) for f in fields(variant.args) if f.init and f.name not in IRRELEVANT
        }
        options["mixed_precision"] = accelerator.mixed_precision  # as it was launched
        config = variant.config.to_dict()
        config.pop("transformers_version", None)
        data = {
            "text and tokenizer": digest(tokens.numpy().tobytes() for tokens in self.tokens.values()),
            "block_size": self.block_size,
            "max_train_samples": self.max_train_samples,
            "max_eval_samples": self.max_eval_samples,
            "number of processes": accelerator.num_processes,
            "device": device(),
        }
        # As they are read again: a tuple is a list, and keys are texts.
        return json.loads(json.dumps(data | options | {f"config.{name}": value for name, value in config.items()}))

    def finished(self, accelerator: Accelerator, variants: Sequence[Variant]) -> dict[str, Result]:
        """The results that `output_dir` holds, unless they are to be replaced.

        Raises:
            ValueError: if one is of other settings than the variant has now, naming them.
        """
        if self.args.overwrite_output_dir:
            return {}
        found = {variant.name: Result.read(variant.folder) for variant in variants}
        results = {name: result for name, result in found.items() if result}
        for variant in variants:
            if variant.name in results:
                old, new = results[variant.name].settings, self.settings(accelerator, variant)
                names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
                changes = ", ".join(f"{name} was {old.get(name)} and is {new.get(name)}" for name in names)
                if changes:
                    raise ValueError(
                        f"output_dir {self.args.output_dir!r} holds variant {variant.name!r} of other settings:"
                        f" {changes}. Give another folder, or --overwrite_output_dir to train all again"
                    )
        return results

    def task(self, accelerator: Accelerator, variant: Variant) -> Task:
        """A new model of the variant, its data and its judgement."""
        batch_size, processes = variant.args.per_device_eval_batch_size, accelerator.num_processes
        multiple = batch_size * processes if processes > 1 else 1
        evaluated = self.blocks("validation", self.max_eval_samples, multiple)
        loader = accelerator.prepare_data_loader(DataLoader(evaluated, batch_size=batch_size))
        return Task(
            model_of(variant.model_args, variant.config),
            self.tokenizer,
            examples=self.blocks("train", self.max_train_samples),
            collate=None,
            count=count_predicted,
            evaluate=lambda model: evaluate_language_model(accelerator, model, loader, evaluated.size),
            shaping={"block_size": self.block_size},
        )

    def train(self, accelerator: Accelerator, variant: Variant) -> Result:
        """Train a variant, and leave its history, configuration and result in its folder. All processes call it.

        Args:
            accelerator: new, and just seeded: so that all variants begin alike, and nothing of another is held.
        """
        if accelerator.is_main_process:
            variant.folder.mkdir(parents=True, exist_ok=True)
            (variant.folder / RESULT).unlink(missing_ok=True)
        settings = self.settings(accelerator, variant)  # now: making a model changes its configuration
        rehearse(variant, accelerator.device)
        memory = PeakMemory(accelerator.device)
        loop = VariantLoop(accelerator, variant.args, self.task(accelerator, variant), memory)
        start_trackers(accelerator, "compare_architectures", variant.args)
        diverged_at = None
        try:
            loop.run()
        except FloatingPointError as error:
            diverged_at = loop.state.step
            logger.warning(f"Variant {variant.name!r} diverged: {error}")
        for tracker in accelerator.trackers:
            tracker.finish()

        state, seconds = loop.state, loop.stopwatch.median
        losses = [entry["eval_loss"] for entry in state.log_history if "eval_loss" in entry]
        tokens = loop.batches.global_batch_size * self.block_size
        result = Result(
            variant.name,
            variant.changes,
            parameters=loop.task.model.num_parameters(),
            steps=state.step,
            tokens_per_step=tokens,
            final_loss=losses[-1] if diverged_at is None else None,
            best_loss=min(losses, default=None),
            diverged_at=diverged_at,
            tokens_per_second=tokens / seconds if seconds else None,
            peak_memory=memory.bytes,
            settings=settings,
            log_history=state.log_history,
        )
        if accelerator.is_main_process:
            variant.config.save_pretrained(variant.folder)
            state.write(variant.folder)
            result.write(variant.folder)
        accelerator.wait_for_everyone()
        return result


def rehearse(variant: Variant, device: torch.device) -> None:
    """One small step, so that what is loaded and set up once does not count as what a variant takes."""
    with torch.random.fork_rng():
        model = model_of(variant.model_args, variant.config).to(device)
        ids = torch.zeros(1, 2, dtype=torch.long, device=device)
        model(input_ids=ids, labels=ids).loss.backward()
        torch.optim.AdamW(model.parameters()).step()


def loss_of_frequencies(train: Tensor, validation: Tensor, vocab_size: int) -> float:
    """The loss, in nats, of guessing each token of `validation` by no more than how frequent it is in `train`."""
    counts = torch.bincount(train, minlength=vocab_size) + 1.0  # one of each, so that none is impossible
    return -float((counts / counts.sum()).log()[validation.long()].mean())
