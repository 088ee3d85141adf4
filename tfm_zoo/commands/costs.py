"""What `convert` measures a model on before and after it rounds weights: texts, and of a classifier a metric."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoTokenizer, PreTrainedModel

from ..converters.token_positions import positions_of
from ..proof.bill import batches_of, bill_of, rows_of
from ..proof.contents import has_tokenizer
from ..utils.published import shortened
from ..utils.quiet import silenced_loading

if TYPE_CHECKING:
    from datasets import Dataset

#: texts that a model is measured on at most, and those that are generated where no split is named; their tokens
ROWS, GENERATED, LONGEST = 512, 64, 256


@dataclass
class Split:
    """The `--split` that a model is measured on."""

    name: str  # a file, or `NAME:SPLIT` of a data set
    rows: "Dataset"
    text_column: str
    label_column: str | None  # `None`: "label", if there is one

    @classmethod
    def read(cls, name: str, text_column: str | None = None, label_column: str | None = None) -> "Split":
        """Reads the rows.

        Raises:
            ValueError: for a split that cannot be read, and for a column that it lacks.
        """
        from ..data import row_files

        if Path(name).is_file():
            kind = row_files.kind_of([Path(name)], row_files.READERS, f"--split {name!r}")
            rows = row_files.rows_of_files([Path(name)], f"--split {name!r}", False, "line" if kind == ".txt" else None)
        else:
            source, _, part = name.rpartition(":")
            splits = row_files.splits_of(source or name) if source or Path(name).is_dir() else {}
            if part not in splits or not source:
                known = f"; its splits are {', '.join(splits)}" if splits else ""
                raise ValueError(f"--split {name!r} is neither a file nor NAME:SPLIT of a data set{known}.")
            rows = splits[part]
        text_column = row_files.find_text_column(rows, text_column, "--text_column_name")
        if label_column:
            label_column = row_files.find_columns(rows, label_column, [], "--label_column_name")[0]
        return cls(name, rows, text_column, label_column)

    def texts_and_labels(self, model: PreTrainedModel) -> tuple[list[str], list[Any]]:
        """The texts of some rows, evenly spaced, and their labels if the model is a classifier and they have some.

        Raises:
            ValueError: for a column of labels if the model is not a classifier, and for a label that it does not have.
        """
        is_classifier = type(model).__name__.endswith("ForSequenceClassification")
        if self.label_column and not is_classifier:
            wrong = "only a classifier has labels, and this is another model."
            raise ValueError(f"--label_column_name {self.label_column!r}: {wrong}")
        column, count = self.label_column or "label", min(len(self.rows), ROWS)
        places = [place * len(self.rows) // count for place in range(count)]
        rows = self.rows.select(places)
        labels = rows[column][:] if is_classifier and column in rows.column_names else []
        is_of_classes = model.config.problem_type in (None, "single_label_classification")
        if labels and model.config.num_labels > 1 and is_of_classes:
            labels = class_numbers(labels, places, self.name, model.config.label2id)
        return rows[self.text_column][:], labels


@dataclass
class Costs:
    """A model's outputs before it is rounded, and what they are for.

    Args:
        batches: inputs. They are empty without a tokenizer: then `pack_weights` measures on drawn tokens.
        measured_on: what they are, for the card.
        labels: of a classifier, the right class of each text.
        metric: the name of a metric of `tfm_zoo/metrics`.
    """

    batches: list[dict[str, torch.Tensor]] = field(default_factory=list)
    measured_on: str = ""
    labels: Sequence[Any] = ()
    metric: str = "accuracy"
    before: torch.Tensor | None = None

    @classmethod
    def on(cls, split: Split | None, metric: str, model: PreTrainedModel, folder: Path) -> "Costs":
        """Measures a model on the texts of a split or, without one, on generated texts.

        Args:
            metric: of a classifier.
            model: in evaluation mode.
            folder: that has its tokenizer.

        Raises:
            ValueError: for a split that does not fit the model, or without a tokenizer to read it.
        """
        if kind := kind_without_texts(model, folder):
            if split:
                raise ValueError(f"--split {split.name!r}: {kind} is measured on drawn tokens. Leave out --split.")
            return cls()
        texts, labels = split.texts_and_labels(model) if split else (generated(), ())
        if not texts:
            return cls()
        with silenced_loading():
            tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        longest = min(positions_of(model.config) or LONGEST, LONGEST)
        name = f"{len(texts)} rows of {shortened(split.name)}" if split else f"{len(texts)} generated texts"
        costs = cls(batches_of(tokenizer, texts, longest), name, labels, metric)
        costs.before = rows_of(model, costs.batches)
        return costs

    def add(self, model: PreTrainedModel) -> None:
        """Writes the bill of the rounded model into its configuration."""
        if self.before is None:
            return
        after = rows_of(model, self.batches)
        bill = bill_of(self.before, after, self.measured_on)
        if self.labels:
            one, other = (self.figure(logits, model) for logits in (self.before, after))
            bill["metric"] = {"name": self.metric, "split": self.measured_on, "float32": one, "quantised": other}
        model.config.quantization_config.bill = bill

    def figure(self, logits: torch.Tensor, model: PreTrainedModel) -> float:
        from ..metrics import load_metrics
        from ..training.tasks.classification import predicted

        problem = model.config.problem_type or "single_label_classification"
        return next(iter(load_metrics([self.metric])(predicted(logits, problem), self.labels).numbers.values()))


def kind_without_texts(model: PreTrainedModel, folder: Path) -> str:
    """What a model is that cannot be measured on single texts; empty if it can."""
    if getattr(model.config, "is_encoder_decoder", False):
        return "an encoder-decoder"
    if type(model).__name__.endswith("MultipleChoice"):
        return "a model of multiple choice"
    return "" if has_tokenizer(folder) else "a model without a tokenizer"


def generated() -> list[str]:
    """Texts that need no file. The list is empty if what generates them is not installed."""
    try:
        from ..data.built_in_data import generated_documents
    except ModuleNotFoundError:
        return []
    return generated_documents()["validation"][:GENERATED]["text"]


def class_numbers(labels: Sequence[Any], places: Sequence[int], split: str, label2id: dict[str, int]) -> list[int]:
    """The number of each label, which is a name or a number.

    Raises:
        ValueError: for a label that the model does not have, in a row of these `places`.
    """
    numbers = label2id | {number: number for number in label2id.values()}
    for place, label in zip(places, labels, strict=True):
        if isinstance(label, list) or label not in numbers:
            known = ", ".join(label2id)
            raise ValueError(f"--split {split!r}, row {place:,}: {label!r} is not a label of the model ({known})")
    return [numbers[label] for label in labels]
