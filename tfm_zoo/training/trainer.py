"""A task in transformers' Trainer, with its callbacks, trackers and optimisers, and without the loop of the recipes."""

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from torch import Tensor, nn
from torch.utils.data import default_collate
from transformers import EvalPrediction, Trainer, TrainingArguments
from transformers.trainer_utils import TrainOutput

from tfm_zoo.data.options import as_mapping
from tfm_zoo.data.splits import vocabulary_digest
from tfm_zoo.training.checkpoints import TrainState, check_identity, clear, identity_of, starting_point
from tfm_zoo.training.streaming.streams import Stream
from tfm_zoo.training.task import Batch, Task, sums
from tfm_zoo.utils.locking import write_json

RUN_FILE = "training_run.json"  # beside its checkpoints: the identity of a run
#: options that the recipes' own loop reads, and the Trainer does not
LOOP = """
    freeze lora_rank early_stopping_patience num_eval_texts sample_prompt sample_length per_device_train_batch_tokens
"""


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
    usual = {each.name: each.default for each in fields(task.args)} | {"per_device_train_batch_tokens": 0}
    if unread := [name for name in LOOP.split() if getattr(task.args, name, 0) not in (None, 0, usual.get(name))]:
        advice = {"per_device_train_batch_tokens": "give 0", "lora_rank": "the recipe itself learns adapters"}
        advice = advice.get(unread[0], "leave it out (the Trainer has callbacks)")
        raise ValueError(f"as_trainer does not read {unread[0]}: {advice}")
    if not isinstance(args, TrainingArguments):
        args = TrainingArguments(**settings_of(task) | dict(args or {}))
    return TaskTrainer(task, args=args, **arguments)


def settings_of(task: Task) -> dict[str, Any]:
    """The settings of a Trainer that follow from the options of a task; most have the same names."""
    args, names = task.args, {each.name for each in fields(TrainingArguments) if each.init}
    own = {"label_smoothing_factor", "gradient_checkpointing"}  # that of the task's loss, and one of two names
    same = {name: value for name, value in vars(args).items() if name in names - own and value is not None}
    if args.gradient_checkpointing:  # its name in later releases comes first
        same[min(names & {"activation_checkpointing", "gradient_checkpointing"})] = True
    if args.sync_each_batch:
        same["accelerator_config"] = {"gradient_accumulation_kwargs": {"sync_each_batch": True}}
    saving, interval = args.checkpointing_steps, str(args.eval_steps or "epoch")
    if task.run.names_best and saving not in (None, interval):
        raise ValueError(f"metric_for_best_model takes one of the checkpoints: give checkpointing_steps {interval}")
    saving = saving or ("best" if task.run.names_best else "no")
    if saving.isdecimal():
        same["save_steps"], saving = int(saving), "steps"
    return same | {
        "max_steps": args.max_train_steps or -1,
        "lr_scheduler_kwargs": as_mapping("lr_scheduler_kwargs", args.lr_scheduler_kwargs),
        "eval_strategy": "steps" if args.eval_steps else "epoch",
        "save_strategy": saving,
        "load_best_model_at_end": task.run.names_best,
        "greater_is_better": args.is_higher_better,
        "train_sampling_strategy": "group_by_length" if args.group_by_length else "random",
        **{name: task.accelerator.mixed_precision == name for name in ("bf16", "fp16")},
        "torch_compile_backend": args.torch_compile_backend if args.torch_compile else None,
        "report_to": args.report_to or ("all" if args.with_tracking else "none"),
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

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> TrainOutput:
        """As the Trainer's; an option `resume_from_checkpoint` counts, too. Refuses a folder that holds another run."""
        if not (resume_from_checkpoint or self.state.global_step):  # a second time the folder holds its own run
            asked = self.args.resume_from_checkpoint or self.task.args.resume_from_checkpoint
            options = replace(self.task.args, output_dir=self.args.output_dir, resume_from_checkpoint=asked)
            checkpoint = starting_point(self.accelerator, options)
            if checkpoint and not (checkpoint / "training_args.bin").exists():
                raise ValueError(f"{checkpoint} is of the recipe's own loop: give another output_dir")
            self.accelerator.wait_for_everyone()  # every process has looked at the folder
            if self.is_world_process_zero():
                clear(Path(self.args.output_dir), goes_on=checkpoint is not None)
            resume_from_checkpoint = checkpoint and str(checkpoint)
        facts = self.task.facts | {"tokenizer": vocabulary_digest(self.task.tokenizer)}
        keep_identity(Path(self.args.output_dir), identity_of(facts, self.task.args), bool(resume_from_checkpoint))
        return super().train(resume_from_checkpoint, *args, **kwargs)

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
        metrics = self.task.compute_metrics(computed, self.split)
        self.task.check_best(metrics)
        return metrics

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Tensor] | None = None) -> None:
        super()._save(output_dir, state_dict)
        if self.args.should_save:
            self.task.save_tokenizer(Path(output_dir or self.args.output_dir))  # of targets, too

    def evaluate(self, eval_dataset: Any = None, *args: Any, **kwargs: Any) -> dict[str, float]:
        """As the Trainer's; the data are a split of the task, by default the validation split."""
        rows = self.eval_dataset if eval_dataset is None else eval_dataset
        self.split = next((name for name, split in self.task.splits.items() if split is rows), "validation")
        return super().evaluate(rows, *args, **kwargs)


def keep_identity(folder: Path, identity: Mapping[str, Any], goes_on: bool) -> None:
    """Keep the identity of a run of transformers' Trainer, whose state has no place for it. Refuses to go on with that
    of another run. All processes call it."""
    file, processes = folder / RUN_FILE, PartialState()
    if goes_on and file.exists():
        check_identity(TrainState(identity=json.loads(file.read_text(encoding="utf-8"))), identity)
    processes.wait_for_everyone()
    if processes.is_main_process:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(file, identity)
