"""A task in transformers' Trainer, with its callbacks, trackers and optimisers, and without the loop of the recipes."""

from collections.abc import Mapping
from dataclasses import fields
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate
from transformers import EvalPrediction, Trainer, TrainingArguments

from tfm_zoo.training.streaming.streams import Stream
from tfm_zoo.training.task import Batch, Task, sums

#: options that the recipes' own loop reads, and the Trainer does not
LOOP = ("freeze", "lora_rank", "early_stopping_patience")
#: options that mean something else to the Trainer, or which `settings_of` translates
OTHERS = {"label_smoothing_factor", "gradient_checkpointing", "torch_compile_backend", "resume_from_checkpoint"}


def as_trainer(task: Task, args: TrainingArguments | Mapping[str, Any] | None = None, **arguments: Any) -> Trainer:
    """A Trainer that learns a task: its model, data, collator, loss and metrics.

    Args:
        args: the Trainer's settings; or those that differ from the task's own options, by their names.
        arguments: others of the Trainer, such as `callbacks`, `optimizers` and a `compute_loss_func` of your own.

    Raises:
        ValueError: for what is not a task, for a task that reads a stream, and for options that the recipes' own loop
            alone has.
    """
    if not isinstance(task, Task):
        raise ValueError(f"as_trainer takes a task of a recipe; transformers' Trainer takes a {type(task).__name__}")
    if isinstance(task.splits["train"], Stream):
        raise ValueError("as_trainer takes data in memory, and this task reads a stream: train it by its recipe")
    if unread := [name for name in LOOP if getattr(task.args, name, None)]:
        raise ValueError(f"as_trainer does not read {unread[0]}: use the Trainer's callbacks, or PEFT")
    if not isinstance(args, TrainingArguments):
        args = TrainingArguments(**settings_of(task) | dict(args or {}))
    return TaskTrainer(task, args=args, **arguments)


def settings_of(task: Task) -> dict[str, Any]:
    """The settings of a Trainer that follow from the options of a task; most have the same names."""
    args, names = task.args, {each.name for each in fields(TrainingArguments) if each.init}
    same = {name: value for name, value in vars(args).items() if name in names - OTHERS and value is not None}
    if args.gradient_checkpointing:  # its name in later releases comes first
        same[min(names & {"activation_checkpointing", "gradient_checkpointing"})] = True
    return same | {
        "max_steps": args.max_train_steps or -1,
        "eval_strategy": "steps" if args.eval_steps else "epoch",
        "save_strategy": "no",
        "bf16": task.accelerator.mixed_precision == "bf16",
        "fp16": task.accelerator.mixed_precision == "fp16",
        "report_to": args.report_to or "none",
        "remove_unused_columns": False,  # the task reads all that its collator makes
        "use_cpu": not torch.accelerator.is_available(),  # without a GPU, processes share the CPU
    }


class TaskTrainer(Trainer):
    """transformers' Trainer, which asks a task for the losses of a batch and for the metrics of a split."""

    loss_is_scaled_for_ga = True  # by the items of all batches of a step: see `compute_loss`

    def __init__(self, task: Task, **arguments: Any):
        self.task, self.split = task, "validation"
        given = {
            "train_dataset": task.splits["train"],
            "eval_dataset": task.splits["validation"],
            "data_collator": task.collate or default_collate,
            "processing_class": task.tokenizer,
            "compute_metrics": self.task_metrics,
        }
        super().__init__(task.model, **given | arguments)

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: torch.device) -> tuple[list, Any]:
        """The batches of a step, and how many items they have in all processes."""
        batches = list(islice(epoch_iterator, num_batches))
        counts = [sums(self.task.count_items(batch)) for batch in batches]
        items = self.accelerator.reduce(torch.stack(counts).sum(0).to(device), "sum") if counts else None
        return batches, items

    def compute_loss(
        self, model: nn.Module, inputs: Batch, return_outputs: bool = False, num_items_in_batch: Tensor | None = None
    ) -> Tensor:
        """A batch's part of the mean loss over all items of a step: the task's loss, or the caller's."""
        if self.compute_loss_func is not None:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch.sum())
        losses = self.task.sum_losses(self.task.compute_batch(model, inputs))
        # The Trainer averages over processes; times their number, the average is the sum.
        return (losses * self.accelerator.num_processes / num_items_in_batch).sum()

    @torch.no_grad()
    def prediction_step(self, model: nn.Module, inputs: Batch, *args: Any, **kwargs: Any) -> tuple[None, Any, Tensor]:
        """What the task needs of a batch, instead of logits; and nothing instead of labels."""
        computed = self.task.evaluate_batch(model, self._prepare_inputs(inputs))
        return None, computed, torch.zeros(1, device=self.args.device)

    def task_metrics(self, evaluated: EvalPrediction) -> dict[str, float]:
        """The task's metrics of the split that is evaluated."""
        computed = {name: torch.as_tensor(values) for name, values in evaluated.predictions.items()}
        return self.task.compute_metrics(computed, self.split)

    def evaluate(self, eval_dataset: Any = None, *args: Any, **kwargs: Any) -> dict[str, float]:
        """As the Trainer's; the data are a split of the task, by default the validation split."""
        rows = self.eval_dataset if eval_dataset is None else eval_dataset
        self.split = next((name for name, split in self.task.splits.items() if split is rows), "validation")
        return super().evaluate(rows, *args, **kwargs)
