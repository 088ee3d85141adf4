"""Data sets, from files, a folder or the Hub: which split is which, and what is cut from train where one is missing."""

import hashlib
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, TypeVar

from datasets import Dataset, DatasetDict, IterableDataset
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tfm_zoo.data import built_in_data, row_files
from tfm_zoo.data.byte_ranges import SHARD
from tfm_zoo.data.options import Options, option

logger = logging.getLogger(__name__)
Rows = TypeVar("Rows", Dataset, IterableDataset)
VALIDATION = ("valid", "val", "dev", "development")  # other names of the validation split


@dataclass(frozen=True)
class DataOptions(Options):
    """The options of where rows come from, and which of them are used."""

    either_or: ClassVar = (("dataset_name", "train_file"),)
    replaces: ClassVar = {
        "dataset_name": "dataset_config_name train_split_name train_file validation_file test_file",
        "train_file": "dataset_name dataset_config_name train_split_name",
    }
    #: the splits that are used
    roles: ClassVar[Sequence[str]] = ("train", "validation", "test")
    #: makes the data set that needs no network; and what a reader of the figures must know of it
    built_in: ClassVar[Callable[[], DatasetDict]]
    built_in_note: ClassVar[str] = "The data set is generated, from templates. It tests the machinery alone."
    #: what a row of a text file is, if not streamed: a "document" or a "line"; None: files are tables alone
    text_rows: ClassVar[str | None] = None
    # Options of some tasks only. These values count for the others; a task that has the option makes it a field.
    streaming: ClassVar[bool] = False
    train_split_name: ClassVar[str | None] = None

    dataset_name: str | None = option(None, "Hub id or folder; default: 'generated', the built-in one.")
    dataset_config_name: str | None = option(None, "Configuration of the data set.")
    train_file: str | None = option(None, "CSV, TSV, JSON (lines), Parquet or, for running text, a text file.")
    validation_file: str | None = option(None, "Such a file to validate on.")
    test_file: str | None = option(None, "Such a file to test on.")
    validation_split_percentage: float = option(10, "Of train, without such a split.", at_least=0, at_most=100)
    test_split_percentage: float = option(0, "Of train to test on, without a test split.", at_least=0, at_most=100)
    max_train_samples: int | None = option(None, "Use this many training examples, picked by the seed.", at_least=1)
    max_eval_samples: int | None = option(None, "Likewise for each split to evaluate on.", at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (files := self.files()) and "train" not in files:
            raise ValueError(f"{next(iter(files))}_file needs a train_file")

    @property
    def source(self) -> str | None:
        """The data set or the training file, as it was named."""
        return self.dataset_name or self.train_file

    @property
    def is_generated(self) -> bool:
        """Whether the data set is the built-in one."""
        return self.dataset_name == built_in_data.NAME

    def files(self) -> dict[str, str]:
        """The files that are named, by their splits."""
        return {role: file for role in self.roles if (file := getattr(self, f"{role}_file", None))}


def pluralize(number: int, thing: str) -> str:
    """A number and what it counts, for log, errors and cards: "1 row", "2 rows", "2 processes"."""
    plural = "" if number == 1 else "es" if thing.endswith("s") else "s"
    return f"{number:,} {thing}{plural}"


def load_data_set(args: DataOptions) -> Mapping[str, Rows]:
    """The splits of a data set of the Hub or of a folder, or of the built-in one."""
    if args.is_generated:
        return {name: row_files.as_asked(rows, args.streaming) for name, rows in args.built_in().items()}
    try:
        return row_files.splits_of(args.dataset_name, args.dataset_config_name, args.streaming, keep_as_text=True)
    except ConnectionError as error:
        reason = f"no such folder, and the Hub cannot be reached; {built_in_data.NAME!r} needs neither"
        raise ValueError(f"dataset_name {args.dataset_name!r}: {reason}") from error


def load_file(args: DataOptions, role: str, file: str) -> Dataset | IterableDataset:
    """The rows of the file that has a role, such as "train", or of all files that fit a pattern."""
    files, name = row_files.matching_files(file), f"{role}_file {file!r}"
    row_files.kind_of(files, row_files.READERS if args.text_rows else row_files.TABLES, name)  # refuses other files
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


def final_split(rows: Mapping[str, Any]) -> str:
    """The split whose figures come last: "test", or "validation" if there is no test split."""
    return "test" if "test" in rows else "validation"


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
        """Digests of the rows, by which a resumed run is known to have the same ones."""
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


def share_to_validate_on(args: DataOptions) -> float:
    """How many percent of train are validated on, if there is no validation split. Refuses 0."""
    if args.validation_split_percentage == 0:
        raise ValueError("there is no validation split: give a validation_split_percentage above 0")
    return args.validation_split_percentage


def cut_splits(args: DataOptions, rows: Mapping[str, Dataset], notes: list[str], seed: int) -> DatasetDict:
    """The splits "train", "validation" and, if there is one or a share is asked for, "test". Those that are missing are
    cut from train, which `notes` then say. Of long splits the seed picks `max_train_samples` or `max_eval_samples`."""
    train = rows["train"]
    shares = {"validation": args.validation_split_percentage, "test": args.test_split_percentage}
    missing = {role: share for role, share in shares.items() if role not in rows and share > 0}
    sizes = {role: max(1, round(len(train) * share / 100)) for role, share in missing.items()}
    if "validation" not in rows:
        share_to_validate_on(args)  # refuses 0
    if sizes and sum(sizes.values()) >= len(train):
        roles = " and a ".join(sizes)
        raise ValueError(f"train has {pluralize(len(train), 'row')}: too few to cut a {roles} split from it")
    if sizes:
        train, cut = train.train_test_split(test_size=sum(sizes.values()), seed=seed).values()
    else:
        # The sampler shuffles, too. Without this, results would differ from those of earlier versions.
        train = train.shuffle(seed=seed)
    splits, taken = {**rows, "train": train}, 0
    for role, size in sizes.items():
        were = "was" if size == 1 else "were"
        notes.append(f"There is no {role} split: {pluralize(size, 'row')} of train {were} taken for it (seed {seed}).")
        splits[role] = cut.select(range(taken, taken + size))
        taken += size
    for role in args.roles:
        limit = args.max_train_samples if role == "train" else args.max_eval_samples
        if role in splits and limit is not None and limit < len(splits[role]):
            splits[role] = splits[role].shuffle(seed=seed).take(limit)
    return DatasetDict({role: splits[role] for role in args.roles if role in splits})
