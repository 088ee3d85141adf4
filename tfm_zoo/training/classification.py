"""Classification as a task: its options, what its loss counts, one evaluation, its card."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from evaluate import EvaluationModule
from torch import Tensor, nn

from tfm_zoo.hub.cards import table
from tfm_zoo.training.arguments import LoopArguments, check_at_least, option
from tfm_zoo.training.classifiers import reads_mean
from tfm_zoo.training.reports import Report, shortened
from tfm_zoo.training.text_data import TextClassificationData


@dataclass
class ClassificationArguments(LoopArguments):
    """What a classification loop needs to know beyond any other."""

    metric_for_best_model: str = option("accuracy", "Validation figure that picks the best model.")
    group_by_length: bool = option(False, "Put examples of similar length into the same batch.")
    freeze_epochs: int = option(0, "Train only the head for this many epochs, then the whole model.")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, {"freeze_epochs": 0})
        if self.freeze_epochs and self.gradual_unfreezing:
            raise ValueError("give either freeze_epochs or gradual_unfreezing: each says when the base model learns")


def count_examples(batch: dict[str, Tensor]) -> int:
    """What a classifier's loss is the mean over."""
    return len(batch["labels"])


@torch.no_grad()
def evaluate_classifier(
    accelerator: Accelerator, model: nn.Module, loader: Iterable[dict[str, Tensor]], metric: EvaluationModule
) -> dict[str, float]:
    """Mean loss, the metric's figures and examples per second, the same on every process.

    Args:
        loader: batches with "labels", prepared by the accelerator.
    """
    model.eval()
    predictions, references, losses = [], [], []
    start = perf_counter()
    for batch in loader:
        labels = batch["labels"]
        with accelerator.autocast():
            logits = model(**{name: value for name, value in batch.items() if name != "labels"}).logits.float()
        loss = F.cross_entropy(logits, labels, reduction="none")
        # Drops the examples that filled up the last batch so that every process had one.
        for values, part in zip(
            (predictions, references, losses),
            accelerator.gather_for_metrics((logits.argmax(-1), labels, loss)),
            strict=True,
        ):
            values.extend(part.tolist())
    seconds = perf_counter() - start
    model.train()
    return {
        "loss": sum(losses) / len(losses),
        **metric.compute(predictions=predictions, references=references),
        "samples_per_second": len(losses) / seconds,
    }


@dataclass
class ClassificationReport(Report):
    """The card of a classifier."""

    texts: TextClassificationData

    pipeline_tag = "text-classification"
    figure_names = {"accuracy": "accuracy", "f1": "F1 (macro)", "loss": "loss"}
    headline = ("accuracy", "f1")

    @property
    def picture_metrics(self) -> tuple[str, ...]:
        metric = self.args.metric_for_best_model
        return () if metric == "loss" else (metric,)

    def introduction(self) -> str:
        origin = f"`{shortened(self.base_model)}`, fine-tuned" if self.base_model else "A new model, trained"
        labels = ", ".join(f"*{label}*" for label in self.texts.label_names)
        return f"""
{origin} on `{self.dataset}` to classify texts as {labels}.
{self.carries_its_code}

```python
from transformers import pipeline

classify = pipeline("text-classification", model={json.dumps(self.repository)}{self.remote_code})
classify("...")
```
""".strip()

    def data(self) -> str:
        sizes = {name: f"{len(split):,}" for name, split in self.texts.splits.items()}
        return f"{table(sizes, ('split', 'examples'))}\n\n{' '.join(self.texts.notes)}"

    def split_of_the_figures(self) -> str | None:
        split = {"eval": "validation", "test": "test"}[self.figures_prefix]
        return split if split in self.texts.own_splits else None

    def task_settings(self) -> dict[str, Any]:
        return {
            "tokens per text": f"at most {self.data_args.max_seq_length}",
            "batches of similar length": "yes" if self.args.group_by_length else "no",
            "epochs with the base model frozen": self.args.freeze_epochs,
            **({"the head reads": "the mean of all tokens"} if reads_mean(self.model.config) else {}),
        }
