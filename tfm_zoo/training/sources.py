"""Where texts come from: files, a folder or the Hub, and how much of them is used."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any, ClassVar

from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict, load_dataset, load_from_disk
from datasets.exceptions import DatasetGenerationError

from tfm_zoo.training import generated
from tfm_zoo.training.arguments import LoopArguments, check_at_least, option


@dataclass
class DataArguments:
    """Which data set a recipe reads, and how much of it. Names are those of transformers' examples."""

    file_types: ClassVar[Mapping[str, str]] = {
        ".csv": "csv",
        ".tsv": "csv",
        ".json": "json",
        ".jsonl": "json",
        ".parquet": "parquet",
    }
    text_rows: ClassVar[str] = "document"  # what of a text file is a row: the whole "document", or a "line"

    dataset_name: str | None = option(None, "Hub id or local folder. 'generated', the default: the built-in data set.")
    dataset_config_name: str | None = option(None, "Configuration of the data set.")
    train_file: str | None = option(None, "CSV, TSV, JSON (lines) or Parquet file, instead of dataset_name.")
    validation_file: str | None = option(None, "Likewise, to validate on.")
    validation_split_percentage: float = option(10, "Share of train to validate on if there is no such split.")
    max_train_samples: int | None = option(None, "Use this many training examples, picked by the seed.")
    max_eval_samples: int | None = option(None, "Likewise of the validation split.")
    preprocessing_num_workers: int | None = option(None, "Processes that tokenize.")

    def built_in(self) -> DatasetDict:
        """The data set that needs no network."""
        return generated.generated_reviews()

    def __post_init__(self) -> None:
        files = list(self.files())
        if files and self.dataset_name:
            raise ValueError("give either dataset_name or train_file, validation_file and test_file, not both")
        if files and "train" not in files:
            raise ValueError("validation_file and test_file need a train_file")
        check_at_least(self, {"max_train_samples": 1, "max_eval_samples": 1, "preprocessing_num_workers": 1})

    def files(self) -> dict[str, str]:
        """The file of each split that is given as a file."""
        named = {split: getattr(self, f"{split}_file", None) for split in ("train", "validation", "test")}
        return {split: file for split, file in named.items() if file}

    @property
    def reading(self) -> dict[str, Any]:
        """Options of `load_dataset`."""
        return {}

    def load_file(self, split: str, file: str) -> Dataset | IterableDataset:
        """What the file of a split holds, or all files that fit a pattern.

        Raises:
            FileNotFoundError, ValueError: naming the file that is missing or cannot be read.
        """
        files = fitting(file)
        if not files:
            raise FileNotFoundError(f"{split}_file {file!r}: no such file")
        suffix, *others = sorted({path.suffix for path in files})
        if others:
            raise ValueError(f"{split}_file {file!r} fits files of several kinds: {', '.join([suffix, *others])}")
        if suffix not in self.file_types:
            raise ValueError(f"{split}_file {file!r}: expected one of {', '.join(self.file_types)}, not {suffix!r}")
        if not any(path.stat().st_size for path in files):
            raise ValueError(f"there is no text in the {split} split: {split}_file {file!r} is empty")
        options = {"sep": "\t"} if suffix == ".tsv" else {}
        options |= {"sample_by": self.text_rows} if suffix == ".txt" else {}  # a document keeps its line breaks
        options |= self.reading
        names = [*map(str, files)]
        try:
            return load_dataset(self.file_types[suffix], data_files=names, split="train", **options)
        except DatasetGenerationError as error:
            raise ValueError(f"{split}_file {file!r} cannot be read: {error.__cause__ or error}") from error


@dataclass
class StreamedArguments(DataArguments):
    """Of a data set that need not fit into memory, nor on the disk."""

    streaming: bool = option(
        False, "Read the training texts while training, from files or the Hub; needs max_train_steps."
    )

    @property
    def reading(self) -> dict[str, Any]:
        return {"streaming": self.streaming}

    @property
    def files_identity(self) -> str | None:
        """Of the files that are streamed: their names and sizes, wherever they lie."""
        if not (self.streaming and self.train_file):
            return None
        return digest(f"{path.name} {path.stat().st_size}" for path in fitting(self.train_file))

    def check_stream(self, args: LoopArguments) -> None:
        """Refuse what a stream cannot do, of which nobody knows how long it is."""
        if not self.streaming:
            return
        if self.max_train_samples:
            raise ValueError("max_train_samples is for texts in memory; with streaming give max_train_steps alone")
        if not args.max_train_steps:
            raise ValueError("streaming needs max_train_steps: nobody knows how many a pass over a stream takes")
        for name in ("gradual_unfreezing", "checkpointing_steps"):
            if getattr(args, name) == "epoch":
                raise ValueError(f"{name} 'epoch': a stream has no epochs; give a number of steps")


@dataclass
class SplitArguments(DataArguments):
    """Of a data set of independent rows: a test split too, and splits that are cut from train."""

    test_file: str | None = option(None, "CSV, TSV, JSON (lines) or Parquet file to test on.")
    test_split_percentage: float = option(0, "Share of train to test on if there is no such split; 0: no test.")
    max_eval_samples: int | None = option(None, "Likewise of the validation and of the test split.")

    def __post_init__(self) -> None:
        super().__post_init__()
        shares = self.validation_split_percentage, self.test_split_percentage
        if min(shares) < 0 or sum(shares) >= 100:
            raise ValueError(
                f"validation_split_percentage and test_split_percentage must be 0 or more and leave something"
                f" to train on, not {shares[0]} and {shares[1]}"
            )


def load_source(args: DataArguments) -> DatasetDict | IterableDatasetDict:
    """The splits that the arguments name, as they are.

    Raises:
        FileNotFoundError, ValueError: naming the file or data set that is missing or cannot be read.
    """
    if files := args.files():
        kind = IterableDatasetDict if args.reading.get("streaming") else DatasetDict
        return kind({split: args.load_file(split, file) for split, file in files.items()})
    name = args.dataset_name
    if name == generated.NAME or (Path(name) / "dataset_dict.json").exists():
        splits = args.built_in() if name == generated.NAME else load_from_disk(name)
        if not args.reading.get("streaming"):
            return splits
        return IterableDatasetDict({split: rows.to_iterable_dataset() for split, rows in splits.items()})
    try:
        return load_dataset(name, args.dataset_config_name, **args.reading)
    except ConnectionError as error:
        raise ValueError(
            f"dataset_name {name!r}: no such folder, and the Hub cannot be reached;"
            f" {generated.NAME!r} is a data set that needs neither"
        ) from error
    except DatasetGenerationError as error:
        raise ValueError(f"dataset_name {name!r} cannot be read: {error.__cause__ or error}") from error


def fitting(file: str) -> list[Path]:
    """The file of this name, or those that fit it as a pattern."""
    path = Path(file)
    return [path] if path.is_file() else sorted(path for path in map(Path, glob(file)) if path.is_file())


def digest(parts: Iterable[str | bytes]) -> str:
    """A short name of texts or bytes, by which to tell them from others."""
    sha = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        sha.update(len(data).to_bytes(8, "big"))
        sha.update(data)
    return sha.hexdigest()[:16]


def text_column(rows: Dataset | IterableDataset, asked: str | None) -> str:
    """The column of the texts: the one asked for, else the only one, else "text"."""
    usual = rows.column_names if len(rows.column_names or ()) == 1 else ["text"]
    (column,) = find_columns(rows, asked and [asked], [usual], "text_column_name")
    return column


def find_columns(
    split: Dataset | IterableDataset, asked: list[str] | None, usual: Sequence[list[str]], option_name: str
) -> list[str]:
    """The columns that were asked for, else the first of the usual ones that are there."""
    columns = split.column_names or list(next(iter(split), {}))  # a stream may not know them before it is read
    if asked:
        missing = [name for name in asked if name not in columns]
        if missing:
            raise ValueError(f"{option_name} {missing[0]!r}: no such column; the columns are {columns}")
        return asked
    for names in usual:
        if set(names) <= set(columns):
            return names
    raise ValueError(f"give {option_name}: none of the usual names is among the columns {columns}")


def check_texts(name: str, split: Dataset, column: str, option_name: str = "text_column_name") -> None:
    """Refuse a column that is missing, or holds anything but texts."""
    if column not in split.column_names:
        raise ValueError(f"split {name!r} has no column {column!r}; its columns: {split.column_names}")
    feature = split.features[column]
    if getattr(feature, "dtype", None) not in ("string", "large_string"):
        raise ValueError(f"{option_name} {column!r} holds {feature}, not text")
    texts = split[column][:]
    if None in texts:
        raise ValueError(f"split {name!r} has no text in row {texts.index(None)} of column {column!r}")


def complete_splits(
    splits: dict[str, Dataset], args: SplitArguments, seed: int, notes: list[str]
) -> tuple[dict[str, Dataset], list[str]]:
    """Splits "train", "validation" and, if there is one or a share is asked for, "test"; and those that were there.

    What is missing is cut from train, which is said in `notes`.
    """
    found = {
        role: next((split for name, split in splits.items() if name.startswith(role)), None)
        for role in ("train", "validation", "test")
    }
    if found["train"] is None:
        if len(splits) != 1:
            raise ValueError(f"no split to train on among {list(splits)}")
        (name,) = splits
        notes.append(f"The data set has only the split {name!r}; train, validation and test are all cut from it.")
        found = {"train": splits[name], "validation": None, "test": None}
        own = []
    else:
        own = [role for role, split in found.items() if split is not None]

    train = found["train"].shuffle(seed=seed)
    for role, share in (("validation", args.validation_split_percentage), ("test", args.test_split_percentage)):
        if found[role] is None and share > 0:
            size = max(1, round(len(found["train"]) * share / 100))
            if size >= len(train):
                raise ValueError(f"train has {len(found['train'])} rows: too few to cut a {role} split from it")
            found[role], train = train.select(range(size)), train.select(range(size, len(train)))
            notes.append(f"There is no {role} split: {size} rows of train were taken for it (seed {seed}).")
    if found["validation"] is None:
        raise ValueError("there is no validation split: give a validation_split_percentage above 0")
    return {role: split for role, split in (found | {"train": train}).items() if split is not None}, own


def limit_splits(splits: dict[str, Dataset], args: SplitArguments, seed: int) -> dict[str, Dataset]:
    """The splits with no more rows than `max_train_samples` and `max_eval_samples` allow, picked by the seed."""
    limits = {"train": args.max_train_samples}
    limited = dict(splits)
    for name, split in splits.items():
        limit = limits.get(name, args.max_eval_samples)
        if limit is not None and limit < len(split):
            limited[name] = split.shuffle(seed=seed).select(range(limit))
    return limited
