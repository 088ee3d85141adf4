"""Classification of texts as a task: its options, its figures, its card. The loss is the model's own."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from datasets import DatasetDict
from torch import Tensor, nn
from transformers import PreTrainedModel

from tfm_zoo.hub.cards import table
from tfm_zoo.training.arguments import LoopArguments, check_at_least, option
from tfm_zoo.training.classification.data import TextClassificationData
from tfm_zoo.training.classification.model import reads_mean
from tfm_zoo.training.evaluation import evaluate_examples
from tfm_zoo.training.freezing import freeze, freeze_base_model
from tfm_zoo.training.reports import Report
from tfm_zoo.training.task import Batch, Task


@dataclass(frozen=True)
class ClassificationArguments(LoopArguments):
    """The options that a classification loop has beyond those of any other."""

    figures: ClassVar = ("loss", "accuracy", "f1")

    metric_for_best_model: str = option("accuracy", "Validation figure that picks the best model.")
    group_by_length: bool = option(False, "Put examples of similar length into the same batch.")
    freeze_epochs: int = option(0, "Train only the head for this many epochs, then the whole model.")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, freeze_epochs=0)
        if self.freeze_epochs and self.gradual_unfreezing:
            raise ValueError("give either freeze_epochs or gradual_unfreezing: each says when the base model learns")

    @property
    def freezing_option(self) -> str | None:
        return "freeze_epochs" if self.freeze_epochs else super().freezing_option


@dataclass
class ClassificationReport(Report):
    """How the training of a classifier ended, and its card."""

    task: "ClassificationTask"

    pipeline_tag = "text-classification"
    figure_names = {"accuracy": "accuracy", "f1": "F1 (macro)", "loss": "loss"}
    headline = ("accuracy", "f1")

    @property
    def picture_metrics(self) -> tuple[str, ...]:
        metric = self.run.args.metric_for_best_model
        return () if metric == "loss" else (metric,)

    def own_splits(self) -> list[str]:
        return self.task.data.own_splits

    def task_values(self) -> dict[str, Any]:
        data = self.task.data
        sizes = {name: f"{len(split):,}" for name, split in data.splits.items()}
        return {
            "labels": ", ".join(f"*{label}*" for label in data.label_names),
            "split_sizes": table(sizes, ("split", "examples")),
            "notes": data.notes,
        }

    def task_settings(self) -> dict[str, Any]:
        args = self.run.args
        return {
            "tokens per text": f"at most {self.run.data_args.max_seq_length}",
            "batches of similar length": "yes" if args.group_by_length else "no",
            "epochs with the base model frozen": args.freeze_epochs,
            **({"the head reads": "the mean of all tokens"} if reads_mean(self.model.config) else {}),
        }


@dataclass(kw_only=True)
class ClassificationTask(Task):
    """A classifier learns the labels of texts."""

    args: ClassificationArguments
    data: TextClassificationData
    encoded: DatasetDict  # the texts as token ids

    report = ClassificationReport

    def __post_init__(self) -> None:
        batch_size = self.args.per_device_eval_batch_size
        splits = [split for split in self.encoded if split != "train"]
        self.loaders = {split: self.eval_loader(self.encoded[split], batch_size) for split in splits}

    def count(self, batch: Batch) -> int:
        """The examples of a batch."""
        return len(batch["labels"])

    def evaluate(self, model: nn.Module, split: str = "validation") -> dict[str, float]:
        """Mean loss, accuracy, F1 and examples per second of a split, the same on every process."""

        def measure(batch: Batch) -> Tensor:
            labels = batch["labels"]
            with self.accelerator.autocast():
                logits = model(**{name: value for name, value in batch.items() if name != "labels"}).logits.float()
            loss = F.cross_entropy(logits, labels, reduction="none")
            return torch.stack([loss, logits.argmax(-1), labels], dim=1)

        (losses, predictions, labels), speed = evaluate_examples(self.accelerator, model, self.loaders[split], measure)
        return {"loss": losses.mean().item(), **accuracy_and_f1(predictions, labels), **speed}

    def before_epoch(self, model: PreTrainedModel, epoch: int) -> None:
        if self.args.freeze_epochs:
            freeze_base_model(model, epoch < self.args.freeze_epochs)
            freeze(model, self.args.freeze or [])  # for good

    def final_figures(self, best: PreTrainedModel) -> dict[str, float]:
        """The figures of the test split, if there is one."""
        figures = self.evaluate(best, "test") if "test" in self.loaders else {}
        return {f"test_{name}": value for name, value in figures.items()}


def accuracy_and_f1(predictions: Tensor, references: Tensor) -> dict[str, float]:
    """Accuracy and F1 (macro) of class ids `(examples,)` against the right ones.

    F1 is the mean over the classes that occur in predictions or references; a class without a true positive has 0.
    (`evaluate` would fetch its figures from the Hub, and a machine without a network has to train, too.)
    """
    correct = predictions == references
    classes = torch.cat([predictions, references]).unique()
    true_positives = torch.stack([(correct & (references == c)).sum() for c in classes]).double()
    occurrences = torch.stack([(predictions == c).sum() + (references == c).sum() for c in classes])
    return {"accuracy": correct.double().mean().item(), "f1": (2 * true_positives / occurrences).mean().item()}
