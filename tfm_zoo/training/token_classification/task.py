"""Classification of words as a task: its options, its figures, its card. The loss is the model's own."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tfm_zoo.models.losses import IGNORED
from tfm_zoo.training.arguments import LoopArguments, option
from tfm_zoo.training.checkpoints import TrainState
from tfm_zoo.training.task import Batch, Task, inputs_of, with_prefix
from tfm_zoo.training.token_classification.data import TaggedTexts
from tfm_zoo.training.token_classification.measures import Scores, entity_scores


@dataclass(frozen=True)
class TokenClassificationArguments(LoopArguments):
    """The options of a token classification loop, besides those of every loop."""

    figures: ClassVar = ("loss", "accuracy", "precision", "recall", "f1")

    metric_for_best_model: str = option("f1", "Validation figure that picks the best model.")
    group_by_length: bool = option(False, "Put examples of similar length into the same batch.")


@dataclass(kw_only=True)
class TokenClassificationTask(Task):
    """A model learns the tags of words. The scores of each kind of entity are kept for the card."""

    args: TokenClassificationArguments
    data: TaggedTexts
    width: int  # the most tokens in a row

    pipeline_tag = "token-classification"
    figure_names = {
        "f1": "F1 (entities)",
        "precision": "precision (entities)",
        "recall": "recall (entities)",
        "accuracy": "accuracy (words)",
        "loss": "loss per word",
    }
    headline = ("f1", "precision", "recall", "accuracy")

    def measure(self, model: nn.Module, batch: Batch) -> Tensor:
        """For each token of each text the loss, the prediction and the label, `(rows, 3 * width)`."""
        labels = batch["labels"]
        logits = model(**inputs_of(batch)).logits.float()
        losses = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
        values = torch.stack([losses, logits.argmax(-1), labels], dim=1)
        return F.pad(values, (0, self.width - labels.shape[1]), value=IGNORED).flatten(1)

    def figures(self, columns: Tensor) -> dict[str, float]:
        """Mean loss, accuracy, and precision, recall and F1 of entities."""
        losses, predictions, labels = columns.T.unflatten(1, (3, self.width)).unbind(1)
        labelled = labels != IGNORED
        names = self.model.config.id2label
        predicted, right = (
            [[names[index] for index in row[kept].long().tolist()] for row, kept in zip(ids, labelled, strict=True)]
            for ids in (predictions, labels)
        )
        total, self.by_kind = entity_scores(predicted, right)
        accuracy = (predictions == labels)[labelled].double().mean().item()
        figures = {"loss": losses[labelled].mean().item(), "accuracy": accuracy}
        return figures | {name: getattr(total, name) for name in Scores._fields[:3]}

    def final_figures(self, best: nn.Module, state: TrainState) -> dict[str, float]:
        """Figures of the final split. The card's scores by kind are of it, too."""
        return with_prefix(self.evaluate(best, self.final_split), self.final_split)
