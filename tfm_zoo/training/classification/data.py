"""Any text classification data set, as splits of texts and label ids."""

import logging
from dataclasses import dataclass, replace
from math import isnan
from typing import ClassVar

from datasets import ClassLabel, Dataset, DatasetDict, Value, load_dataset
from transformers import PreTrainedTokenizerBase
from typing_extensions import Self

from tfm_zoo.training import generated
from tfm_zoo.training.arguments import option
from tfm_zoo.training.labels import in_order
from tfm_zoo.training.sources import SplitArguments, check_column, checked_texts, find_columns, load_source, names_in
from tfm_zoo.training.splits import Data, by_role, divide
from tfm_zoo.training.wording import counted

logger = logging.getLogger(__name__)

DEFAULT_DATASET = "stanfordnlp/imdb"
PAIRS_OF_COLUMNS = "sentence1 sentence2", "premise hypothesis", "question sentence", "question1 question2"
TEXT_COLUMNS = [names.split() for names in ("text", "sentence", *PAIRS_OF_COLUMNS)]
LABEL_COLUMNS = [["label"], ["labels"]]


@dataclass(frozen=True)
class TextDataArguments(SplitArguments):
    """Where the texts and labels are, and how much of them to use."""

    built_in: ClassVar = staticmethod(generated.generated_reviews)

    dataset_name: str | None = option(None, f"Hub id, folder or 'generated' (built-in); default: {DEFAULT_DATASET}.")
    text_column_name: list[str] | None = option(
        None, f"One text column or two; default: first of {names_in(TEXT_COLUMNS)}.", "text_column_names"
    )
    label_column_name: str | None = option(None, "Column of the labels; default: 'label' or 'labels'.")
    max_seq_length: int = option(256, "Longer texts are truncated to this many tokens.", "max_length", at_least=1)
    pad_to_max_length: bool = option(False, "Pad to max_seq_length instead of the batch's longest text.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.text_column_name is not None and not 1 <= len(self.text_column_name) <= 2:
            raise ValueError(f"text_column_name takes one or two columns, not {self.text_column_name}")

    def resolved(self) -> Self:
        """These options with a data set: the default one, or where nobody can reach it the built-in one."""
        if self.source:
            return self
        logger.info(f"Asking for the default data set, {DEFAULT_DATASET}")
        try:
            load_dataset(DEFAULT_DATASET)
        except (ConnectionError, FileNotFoundError):
            logger.warning(f"The default data set, {DEFAULT_DATASET}, cannot be reached")
            return super().resolved()
        return replace(self, dataset_name=DEFAULT_DATASET)


@dataclass
class TextClassificationData(Data):
    """Splits whose columns are `text_columns` and "label", a label's name."""

    text_columns: list[str]
    label_names: list[str]

    def encode(
        self, tokenizer: PreTrainedTokenizerBase, args: TextDataArguments, label2id: dict[str, int]
    ) -> DatasetDict:
        """The splits as token ids, with label ids in the column "labels"."""

        def encode_batch(rows: dict[str, list]) -> dict[str, list]:
            texts = [rows[column] for column in self.text_columns]
            encoded = tokenizer(*texts, truncation=True, max_length=args.max_seq_length)
            return {**encoded, "labels": [label2id[name] for name in rows["label"]]}

        options = {"remove_columns": [*self.text_columns, "label"], "num_proc": args.preprocessing_num_workers}
        return self.splits.map(encode_batch, batched=True, **options)


def load_text_classification(args: TextDataArguments, seed: int) -> TextClassificationData:
    """Load and check the data; the seed decides which rows a missing split and `max_*_samples` take."""
    raw = load_source(args)
    first = next(iter(raw.values()))
    text_columns = find_columns(first, args.text_column_name, TEXT_COLUMNS, "text_column_name")
    (label_column,) = find_columns(first, args.label_column_name, LABEL_COLUMNS, "label_column_name")
    if label_column in text_columns:
        raise ValueError(f"column {label_column!r} cannot be both a text and the label")

    labelled = {name: _labelled(args, name, split, text_columns, label_column) for name, split in raw.items()}
    splits = {name: split for name, split in labelled.items() if split is not None}
    rows, own_splits, notes = by_role(splits, args)
    notes += [f"Split {name!r} is not labelled and was not used." for name in labelled if name not in splits]

    feature = raw.get("train", first).features[label_column]
    label_names = feature.names if isinstance(feature, ClassLabel) else in_order(rows["train"].unique("label"))
    for name, split in rows.items():
        if unknown := sorted(set(split.unique("label")) - set(label_names)):
            raise ValueError(f"split {name!r} has labels that train lacks: {unknown}; train has {label_names}")
    if len(label_names) < 2:
        raise ValueError(f"classification needs two labels or more; {label_column!r} holds only {label_names}")

    return TextClassificationData(divide(rows, args, seed, notes), own_splits, notes, text_columns, label_names)


def _labelled(args: TextDataArguments, name: str, split: Dataset, texts: list[str], column: str) -> Dataset | None:
    """The columns of texts of a split, and the names of its labels in the column "label"; None if it has no labels."""
    for text_column in texts:
        checked_texts(args, name, split, text_column)
    check_column(name, split, column)
    feature = split.features[column]
    labels = split[column][:]
    if isinstance(feature, ClassLabel):
        labels = [feature.int2str(label) if label is not None and label >= 0 else None for label in labels]
    elif not isinstance(feature, Value):
        raise ValueError(f"label_column_name {column!r} holds {feature}; expected text, whole numbers or booleans")
    elif feature.dtype.startswith(("float", "double")):  # also whole numbers, if the column has an empty cell
        labels = [None if label is None or isnan(label) else label for label in labels]
        real = next((label for label in labels if label is not None and not label.is_integer()), None)
        if real is not None:
            raise ValueError(
                f"label_column_name {column!r} holds {feature}, such as {real}; expected text, whole numbers or"
                " booleans: to learn ranges of numbers, write them as names, such as 'low' and 'high'"
            )
        labels = [None if label is None else int(label) for label in labels]
    missing = labels.count(None)
    if missing == len(labels):
        return None
    if missing:
        found = f"split {name!r} has {counted(missing, 'row')} without a label, the first is {{row}}"
        raise args.row_error(name, labels.index(None), found, column)
    return split.select_columns(texts).add_column("label", [str(label) for label in labels])
