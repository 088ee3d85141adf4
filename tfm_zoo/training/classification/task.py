"""Classification of texts as a task: its options, its figures, its card. The loss is the model's own."""

import logging
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from tfm_zoo.training.arguments import LoopArguments, option
from tfm_zoo.training.classification.data import TextClassificationData
from tfm_zoo.training.optimization import freeze, freeze_base_model, what_learns
from tfm_zoo.training.task import Batch, Task, inputs_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ClassificationArguments(LoopArguments):
    """The options of a classification loop, besides those of every loop."""

    figures: ClassVar = ("loss", "accuracy", "f1")
    freezing_options: ClassVar = ("gradual_unfreezing", "freeze_epochs")

    metric_for_best_model: str = option("accuracy", "Validation figure that picks the best model.")
    group_by_length: bool = option(False, "Put examples of similar length into the same batch.")
    freeze_epochs: int = option(0, "Train only the head for this many epochs, then the whole model.", at_least=0)
    frozen_learning_rate: float | None = option(
        None, "Highest rate of the frozen epochs, with a schedule of their own; default: one schedule for all.", above=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.frozen_learning_rate and not self.freeze_epochs:
            raise ValueError("frozen_learning_rate is the head's while the rest is frozen: give freeze_epochs, too")
        if self.freeze_epochs and self.gradual_unfreezing:
            raise ValueError("give either freeze_epochs or gradual_unfreezing: each says when the base model learns")

    def phases(self, total_steps: int, steps_per_epoch: int) -> list[tuple[float, int]]:
        frozen = min(self.freeze_epochs * steps_per_epoch, total_steps)
        if not self.frozen_learning_rate:
            return super().phases(total_steps, steps_per_epoch)
        return [(self.frozen_learning_rate, frozen), (self.learning_rate, total_steps - frozen)]


@dataclass(kw_only=True)
class ClassificationTask(Task):
    """A classifier learns the labels of texts."""

    args: ClassificationArguments
    data: TextClassificationData

    pipeline_tag = "text-classification"
    figure_names = {"accuracy": "accuracy", "f1": "F1 (macro)", "loss": "loss"}
    headline = ("accuracy", "f1")

    def measure(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss, the prediction and the label of each example."""
        labels = batch["labels"]
        logits = model(**inputs_of(batch)).logits.float()
        loss = F.cross_entropy(logits, labels, reduction="none")
        return torch.stack([loss, logits.argmax(-1), labels], dim=1)

    def figures(self, columns: Tensor) -> dict[str, float]:
        """Mean loss, accuracy and F1."""
        losses, predictions, labels = columns
        return {"loss": losses.mean().item(), **accuracy_and_f1(predictions, labels)}

    def before_epoch(self, model: PreTrainedModel, epoch: int) -> None:
        if self.args.freeze_epochs:
            frozen = epoch < self.args.freeze_epochs
            freeze_base_model(model, frozen)
            freeze(model, self.args.freeze or [])  # for good
            if frozen:
                stage = f"epoch {epoch + 1}, one of {self.args.freeze_epochs} with the base model frozen"
                logger.info(f"{stage}: {what_learns(model)}")
            elif epoch == self.args.freeze_epochs:
                logger.info(f"epoch {epoch + 1}, the first with the whole model: {what_learns(model)}")


def accuracy_and_f1(predictions: Tensor, references: Tensor) -> dict[str, float]:
    """Accuracy and F1 (macro) of class ids `(examples,)` against the right ones.

    F1 is the mean over the classes that occur in predictions or references; a class without a true positive has 0.
    (The library `evaluate` would download its metrics, and recipes have to run without a network.)
    """
    correct = predictions == references
    classes = torch.cat([predictions, references]).unique()
    true_positives = torch.stack([(correct & (references == c)).sum() for c in classes]).double()
    occurrences = torch.stack([(predictions == c).sum() + (references == c).sum() for c in classes])
    return {"accuracy": correct.double().mean().item(), "f1": (2 * true_positives / occurrences).mean().item()}
