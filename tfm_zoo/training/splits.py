"""Data sets, from files, a folder or the Hub: which split is which, and what is cut from train where one is missing."""

import hashlib
import json
import logging
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, TypeVar

from datasets import ClassLabel, Dataset, DatasetDict, IterableDataset
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tfm_zoo.data import built_in_data, row_files
from tfm_zoo.data.byte_ranges import SHARD
from tfm_zoo.training.options import DataOptions

logger = logging.getLogger(__name__)
Rows = TypeVar("Rows", Dataset, IterableDataset)
VALIDATION = ("valid", "val", "dev", "development")  # other names of the validation split


def pluralize(number: int, thing: str) -> str:
    """A number and what it counts, for log, errors and cards: "1 row", "2 rows", "2 processes"."""
    plural = "" if number == 1 else "es" if thing.endswith("s") else "s"
    return f"{number:,} {thing}{plural}"


def load_data_set(args: DataOptions) -> Mapping[str, Rows]:
    """The splits of a data set of the Hub or of a folder, or of the built-in one."""
    if args.is_generated:
        return {name: row_files.streamed_in_shards(rows, args.streaming) for name, rows in args.built_in().items()}
    try:
        return row_files.splits_of(args.dataset_name, args.dataset_config_name, args.streaming, keep_as_text=True)
    except ConnectionError as error:
        reason = f"no such folder, and the Hub cannot be reached; {built_in_data.NAME!r} needs neither"
        raise ValueError(f"dataset_name {args.dataset_name!r}: {reason}") from error


def load_file(args: DataOptions, role: str, file: str) -> Dataset | IterableDataset:
    """The rows of the file that has a role, such as "train", or of all files that fit a pattern."""
    files, name = row_files.matching_files(file), f"{role}_file {file!r}"
    row_files.kind_of(files, row_files.TEXT_FILES if args.text_rows else row_files.TABLES, name)
    if not any(path.stat().st_size for path in files):
        raise ValueError(f"there is no text in the {role} split: {name} is empty")
    return row_files.rows_of_files(files, name, args.streaming, args.text_rows, SHARD, keep_as_text=True)


def load_splits(
    args: DataOptions, read: Callable[[DataOptions, str, str], Rows] = load_file
) -> tuple[dict[str, Rows], list[str]]:
    """The splits "train" and, if there are any, "validation" and "test"; and what a reader of the figures must know.
    `read` gives the rows of the file that has a role: one of these three words.

    A role goes to the first split whose name begins with the word; "validation" may have a name of `VALIDATION`. The
    only split of a data set is trained on, whatever its name; so is the one that `train_split_name` names.
    """
    files = args.files()
    splits = {role: read(args, role, file) for role, file in files.items()} if files else load_data_set(args)
    if name := args.train_split_name:
        if name not in splits:
            raise ValueError(f"train_split_name {name!r}: no such split among {list(splits)}")
        splits = {"train": splits[name], **{other: splits[other] for other in splits if other not in ("train", name)}}
    notes = [args.built_in_note] if args.is_generated else []
    names = {role: next((name for name in splits if name.startswith(role)), None) for role in args.roles}
    if names["train"] is not None:
        names["validation"] = names["validation"] or next((name for name in splits if name in VALIDATION), None)
        return {role: splits[name] for role, name in names.items() if name is not None}, notes
    if len(splits) > 1:
        raise ValueError(f"no split to train on among {list(splits)}: no name begins with 'train'")
    ((name, train),) = splits.items()
    return {"train": train}, [*notes, f"The data set has only the split {name!r}; all others are cut from it."]


def vocabulary_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """A short digest of a tokenizer's tokens and their ids."""
    return digest(f"{index} {token}" for token, index in sorted(tokenizer.get_vocab().items()))


def digest(parts: Iterable[str | Tensor]) -> str:
    """A short digest of texts or of tensors on the CPU, by which a resumed run recognises them."""
    sha = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else memoryview(part.numpy()).cast("B")
        sha.update(len(data).to_bytes(8, "big"))
        sha.update(data)
    return sha.hexdigest()[:16]


@dataclass(frozen=True)
class FoundSplit:
    """A split as it was found: its columns, and the errors that name it."""

    args: DataOptions
    name: str
    rows: Dataset

    def __str__(self) -> str:
        return f"split {self.name!r}"

    def check(self, column: str) -> None:
        """Refuse a split without this column."""
        if column not in self.rows.column_names:
            raise ValueError(f"{self} has no column {column!r}; its columns: {self.rows.column_names}")

    def texts(self, column: str, option_name: str = "text_column_name") -> list[str]:
        """The texts of a column. Refuses one that is missing or holds anything else, and a text that is missing."""
        self.check(column)
        feature = self.rows.features[column]
        if getattr(feature, "dtype", None) not in ("string", "large_string"):
            raise ValueError(f"{option_name} {column!r} holds {feature}, not text")
        texts = self.rows[column][:]
        if None in texts:
            raise self.error(texts.index(None), "there is no text", column)
        return texts

    def error(self, row: int, what: str, column: str | None = None) -> ValueError:
        """The error for a row where this is wrong. It names the line, if the split is one file of lines."""
        files = row_files.matching_files(self.args.files().get(self.name, ""))
        line = row_files.line_of(files[0], row) if len(files) == 1 else None
        place = f"row {row}, counted from 0 without a header" if line is None else f"line {line}"
        place += f" of {files[0].name}" if len(files) == 1 else ""
        return ValueError(f"{self}, {place}{f', column {column!r}' if column else ''}: {what}")


@dataclass
class Data(ABC):
    """Splits "train", "validation" and perhaps "test", with notes on them."""

    splits: DatasetDict
    notes: list[str]  # what a reader of the figures must know of the data

    text_columns: ClassVar[Sequence[str]]
    usual_metrics: ClassVar[Sequence[str]]  # of predictions, where the options name no metrics
    are_pairs: ClassVar[bool] = False  # whether a model reads two texts at once

    def texts(self) -> Iterator[str]:
        """The training texts. Read when iterated."""
        return chain.from_iterable(self.splits["train"][column] for column in self.text_columns)

    @abstractmethod
    def encode(self, args: Any, model: PreTrainedModel, tokenizer: Any, **others: Any) -> DatasetDict:
        """The splits as token ids and labels. `others`: further tokenizers. `notes` may get sentences on them."""

    @property
    def digests(self) -> dict[str, str]:
        """Digests of the texts, by which a resumed run is known to have the same ones."""
        digests = {}
        for name, split in (("training texts", "train"), ("validation texts", "validation")):
            values = chain(*self.splits[split].to_dict().values())
            digests[name] = digest(value if isinstance(value, str) else json.dumps(value) for value in values)
        return digests


def without_empty(rows: Mapping[str, Dataset], columns: Sequence[str], notes: list[str]) -> dict[str, Dataset]:
    """The splits without rows in which a text or a list of these columns is empty; `notes` then say how many."""

    def are_filled(*values: Any) -> bool:
        return all(value.strip() if isinstance(value, str) else value for value in values)

    filled = {name: split.filter(are_filled, input_columns=[*columns]) for name, split in rows.items()}
    for name, split in rows.items():
        if left_out := len(split) - len(filled[name]):
            of = f"{left_out:,} of the {len(split):,} rows of the {name} split"
            notes.append(f"{of}, whose {' or '.join(map(repr, columns))} is empty, were left out.")
    return filled


def cut_splits(args: DataOptions, rows: Mapping[str, Dataset], notes: list[str], seed: int) -> DatasetDict:
    """The splits "train", "validation" and, if there is one or a share is asked for, "test". Those that are missing are
    cut from train, which `notes` then say. Of long splits the seed picks `max_train_samples` or `max_eval_samples`."""
    train = rows["train"]
    shares = {"validation": args.validation_split_percentage, "test": args.test_split_percentage}
    missing = {role: share for role, share in shares.items() if role not in rows and share > 0}
    sizes = {role: max(1, round(len(train) * share / 100)) for role, share in missing.items()}
    if "validation" not in rows and "validation" not in sizes:
        raise ValueError("there is no validation split: give a validation_split_percentage above 0")
    if sizes and sum(sizes.values()) >= len(train):
        roles = " and a ".join(sizes)
        raise ValueError(f"train has {pluralize(len(train), 'row')}: too few to cut a {roles} split from it")
    if sizes:
        train, rest = train.train_test_split(test_size=sum(sizes.values()), seed=seed).values()
    else:
        # The sampler shuffles, too. Without this, results would differ from those of earlier versions.
        train = train.shuffle(seed=seed)
    splits, taken = {**rows, "train": train}, 0
    for role, size in sizes.items():
        were = "was" if size == 1 else "were"
        notes.append(f"There is no {role} split: {pluralize(size, 'row')} of train {were} taken for it (seed {seed}).")
        splits[role] = rest.select(range(taken, taken + size))
        taken += size
    for role in args.roles:
        limit = args.max_train_samples if role == "train" else args.max_eval_samples
        if role in splits and limit is not None and limit < len(splits[role]):
            splits[role] = splits[role].shuffle(seed=seed).take(limit)
    return DatasetDict({role: splits[role] for role in args.roles if role in splits})


def class_names(feature: Any) -> list[str] | None:
    """The names of the labels in a column, or in its lists, if the data set has a list of them."""
    feature = getattr(feature, "feature", feature)
    return feature.names if isinstance(feature, ClassLabel) else None


def labels_in(rows: Dataset, column: str) -> list[Any]:
    """The labels in a column, or the lists of them. An id of a class whose name the data set has becomes that name. A
    missing label becomes None: an id below 0, or an empty cell among numbers, which is NaN."""
    names = class_names(rows.features[column])

    def named(label: Any) -> Any:
        if isinstance(label, list):
            return [*map(named, label)]
        if names and label is not None:
            return names[label] if label >= 0 else None
        return None if label != label else label  # (NaN is not equal to itself)

    return [*map(named, rows[column])]


def natural_sort(names: Iterable[str]) -> list[str]:
    """Names in order: whole numbers by value, and after them all others by the alphabet."""
    read_whole = re.compile(r"(-?\d+)(\.0+)?").fullmatch
    return sorted(names, key=lambda name: (0, int(number[1]), name) if (number := read_whole(name)) else (1, 0, name))


def each_label(labels: Iterable[str | list[str]]) -> list[str]:
    """The labels of all rows, each of which has one or a list of them."""
    return list(chain.from_iterable(label if isinstance(label, list) else [label] for label in labels))


def known_labels(rows: Mapping[str, Dataset], column: str, names: list[str] | None) -> list[str]:
    """The names of the labels that a column holds, by default those in the train split. Refuses others elsewhere."""
    names = names or natural_sort(set(each_label(rows["train"][column])))
    for name, split in rows.items():
        if unknown := sorted(set(each_label(split[column])) - set(names)):
            raise ValueError(f"split {name!r} has labels that train lacks: {unknown}; train has {names}")
    return names


def log_label_counts(labels: Sequence[str], number: int, names: Sequence[str], thing: str = "row") -> None:
    """Log how often each label occurs among the `number` rows (or words) to train on; warn where they are too many."""
    counts, of = Counter(labels), f"{pluralize(len(names), 'label')} in {pluralize(number, thing)} to train on"
    logger.info(f"{of}: {', '.join(f'{name} {counts[name]:,}' for name in names[:12])}{', ...' * (len(names) > 12)}")
    if 2 * len(names) > number:
        logger.warning(f"{of}: is label_column_name the right column?")
