"""Classification of texts: with one label each, with any number of labels, or with numbers (regression)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from datasets import Dataset, DatasetDict, List
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, PreTrainedModel, PreTrainedTokenizerBase

from tfm_zoo.data import built_in_data, row_files, splits
from tfm_zoo.data import labels as labelling
from tfm_zoo.data.labels import ANY_LABELS, NUMBERS, ONE_LABEL
from tfm_zoo.data.options import option
from tfm_zoo.training.models import Head, ModelAndTokenizer, with_padding
from tfm_zoo.training.new_models import model_with_labels
from tfm_zoo.training.options import TrainingOptions
from tfm_zoo.training.run import Run
from tfm_zoo.training.task import Batch, Task, Tensors, inputs_of, load_task_of_rows

HEAD = Head(AutoModelForSequenceClassification, "sequence classifier")
PAIRS_OF_COLUMNS = "sentence1 sentence2", "premise hypothesis", "question sentence", "question1 question2"
TEXT_COLUMNS = [names.split() for names in ("text", "sentence", *PAIRS_OF_COLUMNS)]
LABEL_COLUMNS = [["label"], ["labels"]]


@dataclass(frozen=True)
class ClassificationOptions(TrainingOptions):
    """The options of a classifier."""

    built_in: ClassVar = staticmethod(built_in_data.generated_reviews)

    # The model
    ignore_mismatched_sizes: bool = option(False, "Replace a classification head that has other labels.")
    classifier_pooling: Literal["cls", "mean", "attention"] | None = option(
        None, "What a zoo encoder's head reads: the first token, the mean, or a learned mean; default: as configured."
    )

    # The data
    text_column_name: list[str] | None = option(
        None, f"One text column or two; default: first of {row_files.names_in(TEXT_COLUMNS)}.", "text_column_names"
    )
    label_column_name: list[str] | None = option(
        None, "Labels, lists or numbers; or several columns, of 1 and 0 or of numbers.", "label_column_names"
    )
    problem_type: Literal[ONE_LABEL, ANY_LABELS, NUMBERS] | None = option(
        None, "Default: several labels for lists and columns, else one."
    )
    class_weights: list[float] | None = option(None, "How much each label counts, in the order that the log has.")
    label_smoothing_factor: float = option(0.0, "Label smoothing: what labels give to all.", at_least=0, below=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.text_column_name is not None and not 1 <= len(self.text_column_name) <= 2:
            raise ValueError(f"text_column_name takes one or two columns, not {self.text_column_name}")
        if self.classifier_pooling and self.model_class == "native":
            raise ValueError("classifier_pooling is for encoders of the zoo, not for model_class 'native'")
        if self.classifier_pooling and "classifier_pooling" in self.overrides():
            raise ValueError("give classifier_pooling either by itself or in config_overrides, not both")


@dataclass
class LabelledTexts(splits.Data):
    """Splits whose columns are `text_columns` and "label": a label's name, a list of names, or a list of numbers."""

    text_columns: list[str]
    label_names: list[str]  # of numbers, the names of their columns
    problem: str

    @property
    def are_pairs(self) -> bool:
        return len(self.text_columns) > 1

    @property
    def usual_metrics(self) -> list[str]:
        if self.problem != NUMBERS:
            return ["accuracy", "f1"]
        return ["mse"] if len(self.label_names) > 1 else ["mse", "pearsonr"]  # which is of one number a row

    def encode(
        self, args: ClassificationOptions, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
    ) -> DatasetDict:
        """The splits as token ids, with the column "labels" as the model reads it."""
        columns, problem, label2id = self.text_columns, self.problem, model.config.label2id

        def encode_batch(rows: dict[str, list]) -> dict[str, list]:
            texts = [rows[column] for column in columns]
            encoded = tokenizer(*texts, truncation=True, max_length=args.max_seq_length)
            return {**encoded, "labels": encoded_labels(rows["label"], problem, label2id)}

        options = {"remove_columns": [*columns, "label"], "num_proc": args.preprocessing_num_workers}
        return self.splits.map(encode_batch, batched=True, **options)


def load_texts(args: ClassificationOptions) -> LabelledTexts:
    """Load and check the data; the seed decides which rows a missing split and `max_*_samples` take."""
    raw, notes = splits.load_splits(args)
    text_columns, label_columns, problem = columns_and_problem(args, raw["train"])
    rows = {}
    for name, split in raw.items():
        table = splits.FoundSplit(args, name, split)
        labelled = labelling.labelled_rows(text_columns, label_columns, problem, table)
        if labelled is not None:
            rows[name] = labelled
        elif name == "train" or name in args.files():
            raise ValueError(f"{table} has no labels: all of them are missing")
        else:
            notes.append(f"Split {name!r} is not labelled and was not used.")
    divided = splits.cut_splits(args, rows, notes, args.seed)
    names = label_columns
    if problem != NUMBERS:
        declared = labelling.class_names(raw["train"].features[label_columns[0]])
        names = labelling.known_labels(rows, "label", label_columns if len(label_columns) > 1 else declared)
        if len(names) < 2 and problem == ONE_LABEL:
            raise ValueError(f"classification needs two labels or more; {label_columns[0]!r} holds only {names}")
        labelling.log_label_counts(labelling.each_label(divided["train"]["label"]), len(divided["train"]), names)
    return LabelledTexts(divided, notes, text_columns, names, problem)


def columns_and_problem(args: ClassificationOptions, split: Dataset) -> tuple[list[str], list[str], str]:
    """The columns of texts, the columns of labels, and the problem that the options name or these columns show."""
    texts = row_files.find_columns(split, args.text_column_name, TEXT_COLUMNS, "text_column_name")
    labels = row_files.find_columns(split, args.label_column_name, LABEL_COLUMNS, "label_column_name")
    if both := set(labels).intersection(texts):
        raise ValueError(f"column {both.pop()!r} cannot be both a text and the label")
    if "label" in texts:
        raise ValueError("text_column_name 'label': labels get a column of this name; rename that of the texts")
    are_many = isinstance(split.features[labels[0]], List) or len(labels) > 1
    problem = args.problem_type or (ANY_LABELS if are_many else ONE_LABEL)
    if problem == ONE_LABEL and are_many:
        raise ValueError(f"problem_type {problem!r} takes one column with one label in each row, not {labels}")
    if problem == ANY_LABELS and not are_many:
        raise ValueError(f"problem_type {problem!r} takes a column of lists, or several columns, not {labels[0]!r}")
    return texts, labels, problem


def encoded_labels(labels: Iterable[Any], problem: str, label2id: Mapping[str, int]) -> list[Any]:
    """Labels as a model reads them: an id each; a 1 or 0 for each of all labels; or a number, or several."""
    if problem == ONE_LABEL:
        return [label2id[label] for label in labels]
    if problem == ANY_LABELS:
        names = labelling.names_by_id(label2id)
        return [[float(name in each) for name in names] for each in labels]
    return [numbers if len(numbers) > 1 else numbers[0] for numbers in labels]


def build_classifier(args: ClassificationOptions, texts: LabelledTexts) -> ModelAndTokenizer:
    """The model for the labels, a checkpoint or a new one, and its tokenizer."""
    fields = {"problem_type": texts.problem}
    if args.classifier_pooling:  # which only encoders of the zoo have; others refuse it
        fields["classifier_pooling"] = args.classifier_pooling
    model, tokenizer = model_with_labels(HEAD, args, texts.texts(), texts.label_names, **fields)
    tokenizer = with_padding(tokenizer)
    end = model.config.eos_token_id
    if args.is_new and model.config.is_encoder_decoder and end not in tokenizer("")["input_ids"]:
        kind = args.model_type or model.config.model_type
        raise ValueError(f"{kind!r} reads eos_token_id {end}, with which the tokenizer ends no text: give another one")
    if model.config.pad_token_id is None:  # by which the classifier of a decoder finds a text's last token
        model.config.pad_token_id = tokenizer.pad_token_id
    return model, tokenizer


def predicted(logits: Tensor, problem: str) -> Tensor:
    """What logits `(rows, labels)` predict: the class of each row, `(rows,)`; 1 for each label that is likelier than
    not, `(rows, labels)`; or numbers, `(rows,)` if there is one a row."""
    if problem == ONE_LABEL:
        return logits.argmax(-1)
    if problem == ANY_LABELS:
        return (logits > 0) * 1
    return logits[:, 0] if logits.shape[-1] == 1 else logits


LOSSES = {ONE_LABEL: F.cross_entropy, ANY_LABELS: F.binary_cross_entropy_with_logits, NUMBERS: F.mse_loss}


@dataclass(kw_only=True)
class ClassificationTask(Task):
    """A classifier learns the labels, or the numbers, of texts."""

    data: LabelledTexts

    pipeline_tag = "text-classification"
    weights = None  # of the labels in the loss, `(labels,)`, if options name them
    metric_titles = {
        "accuracy": "accuracy",
        "f1": "F1 (macro)",
        "f1_micro": "F1 (micro)",
        "mse": "mean squared error",
        "pearsonr": "correlation (Pearson)",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        pooling = getattr(self.model.config, "classifier_pooling", "cls")
        names, label2id = self.data.label_names, self.model.config.label2id
        if weights := self.args.class_weights:
            if self.data.problem != ONE_LABEL or len(weights) != len(names) or min(weights) < 0:
                raise ValueError(f"class_weights {weights}: expected a number of at least 0 for each of {names}")
            self.weights = torch.tensor([weights[names.index(name)] for name in labelling.names_by_id(label2id)])
        # A fact replaces the option of its name. Earlier versions recorded None for "cls" and for EuroBERT's "late",
        # the mean of all tokens' outputs. Both are defaults.
        self.facts["classifier_pooling"] = None if pooling in ("cls", "late") else pooling

    @property
    def usual_best(self) -> str:
        return self.data.usual_metrics[0]

    @property
    def known_metrics(self) -> list[str]:
        return [*self.data.usual_metrics, *(["f1_micro"] if self.data.problem == ANY_LABELS else [])]

    def count_items(self, batch: Batch) -> Tensors:
        """The items of each example; with class weights, the weight of its label, as the loss is a weighted mean."""
        labels = batch["labels"]
        if self.data.problem == NUMBERS:  # -100 is a number like any other
            return {"loss_items": torch.ones_like(labels).view(len(labels), -1).sum(dim=1)}
        if self.weights is None:
            return super().count_items(batch)
        return {"loss_items": self.weights.to(labels.device)[labels]}

    def compute_batch(self, model: nn.Module, batch: Batch) -> Tensors:
        """The losses and, in evaluations, the prediction and the label, or labels, of each example."""
        labels, problem, learns = batch["labels"], self.data.problem, torch.is_grad_enabled()
        logits = model(**inputs_of(batch)).logits.float()
        smooths = learns and problem == ONE_LABEL
        options = {"label_smoothing": self.args.label_smoothing_factor} if smooths else {}
        targets = labels.view_as(logits) if problem == NUMBERS else labels
        losses = LOSSES[problem](logits, targets, reduction="none", **options)
        if self.weights is not None:  # a label weighs as much as it counts
            losses = losses * self.count_items(batch)["loss_items"]
        if learns:
            return {"loss": losses}
        references = labels.long() if problem == ANY_LABELS else labels
        return {"loss": losses, "predictions": predicted(logits, problem), "references": references}

    def compute_metrics(self, computed: Tensors, split: str) -> dict[str, float]:
        results = self.metrics(computed["predictions"], computed["references"])
        return {**super().compute_metrics(computed, split), **results.numbers}


def load_task(run: Run) -> ClassificationTask:
    return load_task_of_rows(ClassificationTask, run, load_texts, build_classifier)
