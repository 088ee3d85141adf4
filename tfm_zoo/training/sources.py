"""Where texts come from: files, a folder or the Hub; and which rows of them a run uses."""

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from glob import glob
from pathlib import Path
from typing import ClassVar

from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict, load_dataset, load_from_disk
from datasets.exceptions import DatasetGenerationError
from typing_extensions import Self

from tfm_zoo.training import generated
from tfm_zoo.training.arguments import LoopArguments, check_at_least, option

logger = logging.getLogger(__name__)
ROLES = ("train", "validation", "test")
#: the readers of `datasets` for tables, by the ends of the files' names
TABLES = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}


@dataclass(frozen=True)
class DataArguments:
    """Which data set a recipe reads, and how much of it. Names are those of transformers' examples."""

    file_types: ClassVar[Mapping[str, str]] = TABLES
    text_rows: ClassVar[str] = "document"  # what a row of a text file is: the whole "document", or a "line"
    streaming: ClassVar[bool] = False

    dataset_name: str | None = option(None, "Hub id or local folder. 'generated', the default: the built-in data set.")
    dataset_config_name: str | None = option(None, "Configuration of the data set.")
    train_file: str | None = option(None, "CSV, TSV, JSON (lines) or Parquet file, instead of dataset_name.")
    validation_file: str | None = option(None, "Likewise, to validate on.")
    validation_split_percentage: float = option(10, "Share of train to validate on if there is no such split.")
    max_train_samples: int | None = option(None, "Use this many training examples, picked by the seed.")
    max_eval_samples: int | None = option(None, "Likewise of the validation split.")
    preprocessing_num_workers: int | None = option(None, "Processes that tokenize.")

    def __post_init__(self) -> None:
        files = self.files()
        if files and self.dataset_name:
            raise ValueError("give either dataset_name or train_file, validation_file and test_file, not both")
        if files and "train" not in files:
            raise ValueError("validation_file and test_file need a train_file")
        check_at_least(self, max_train_samples=1, max_eval_samples=1, preprocessing_num_workers=1)

    def resolved(self) -> Self:
        """These options with a data set, the built-in one if they name none."""
        if self.source:
            return self
        logger.warning("No data set and no file was named: using the built-in GENERATED data")
        return replace(self, dataset_name=generated.NAME)

    def check_loop(self, args: LoopArguments) -> None:
        """Refuse options of the loop that this data set cannot serve."""

    def built_in(self) -> DatasetDict:
        """The data set that needs no network."""
        return generated.generated_reviews()

    @property
    def source(self) -> str | None:
        """The data set or the training file, as it was named."""
        return self.dataset_name or self.train_file

    @property
    def is_generated(self) -> bool:
        """Whether the data set is the built-in one."""
        return self.dataset_name == generated.NAME

    def files(self) -> dict[str, str]:
        """The files that are named, by their splits."""
        return {split: file for split in ROLES if (file := getattr(self, f"{split}_file", None))}

    def load_file(self, split: str, file: str) -> Dataset | IterableDataset:
        """The rows of a split's file, or of all files that fit a pattern."""
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
        options = {".tsv": {"sep": "\t"}, ".txt": {"sample_by": self.text_rows}}.get(suffix, {})
        options |= {"data_files": [*map(str, files)], "split": "train", "streaming": self.streaming}
        try:
            return load_dataset(self.file_types[suffix], **options)
        except DatasetGenerationError as error:
            raise ValueError(f"{split}_file {file!r} cannot be read: {error.__cause__ or error}") from error


@dataclass(frozen=True)
class StreamedArguments(DataArguments):
    """The options of a data set that need not fit into memory or onto the disk."""

    streaming: bool = option(False, "Read the training texts while training; needs max_train_steps.")

    @property
    def files_identity(self) -> str | None:
        """A digest of the streamed files' names and sizes, wherever they lie; None if no files are streamed."""
        if not (self.streaming and self.train_file):
            return None
        return digest(f"{path.name} {path.stat().st_size}" for path in fitting(self.train_file))

    def check_loop(self, args: LoopArguments) -> None:
        """Refuse options that need the length of the data, which a stream does not tell."""
        if not self.streaming:
            return
        if self.max_train_samples:
            raise ValueError("max_train_samples is for texts in memory; with streaming give max_train_steps alone")
        if not args.max_train_steps:
            raise ValueError("streaming needs max_train_steps: nobody knows how many a pass over a stream takes")
        for name in ("gradual_unfreezing", "checkpointing_steps"):
            if getattr(args, name) == "epoch":
                raise ValueError(f"{name} 'epoch': a stream has no epochs; give a number of steps")


@dataclass(frozen=True)
class SplitArguments(DataArguments):
    """The options of a data set of independent rows, from which a validation and a test split can be cut."""

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
    """The splits that the options name, as they are; an error names the file or data set that cannot be read."""
    if files := args.files():
        kind = IterableDatasetDict if args.streaming else DatasetDict
        return kind({split: args.load_file(split, file) for split, file in files.items()})
    name = args.dataset_name
    if args.is_generated or (Path(name) / "dataset_dict.json").exists():
        splits = args.built_in() if args.is_generated else load_from_disk(name)
        if not args.streaming:
            return splits
        return IterableDatasetDict({split: rows.to_iterable_dataset() for split, rows in splits.items()})
    try:
        return load_dataset(name, args.dataset_config_name, streaming=args.streaming)
    except ConnectionError as error:
        raise ValueError(
            f"dataset_name {name!r}: no such folder, and the Hub cannot be reached;"
            f" {generated.NAME!r} is a data set that needs neither"
        ) from error
    except DatasetGenerationError as error:
        raise ValueError(f"dataset_name {name!r} cannot be read: {error.__cause__ or error}") from error


def fitting(file: str) -> list[Path]:
    """The file of this name, or the files that fit it as a pattern."""
    path = Path(file)
    return [path] if path.is_file() else sorted(path for path in map(Path, glob(file)) if path.is_file())


def digest(parts: Iterable[str | bytes]) -> str:
    """A short name for texts or bytes, which others do not have."""
    sha = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        sha.update(len(data).to_bytes(8, "big"))
        sha.update(data)
    return sha.hexdigest()[:16]


def digest_of(rows: Dataset) -> str:
    """A short name for the texts of a data set's columns."""
    return digest(text for column in rows.column_names for text in rows[column])


def text_column(rows: Dataset | IterableDataset, asked: str | None) -> str:
    """The column of the texts: the one that `text_column_name` names, else the only one, else "text"."""
    usual = rows.column_names if len(rows.column_names or ()) == 1 else ["text"]
    (column,) = find_columns(rows, asked and [asked], [usual], "text_column_name")
    return column


def find_columns(
    split: Dataset | IterableDataset, asked: list[str] | None, usual: Sequence[list[str]], option_name: str
) -> list[str]:
    """The columns that an option names, else the first of the usual ones that exist."""
    columns = split.column_names or list(next(iter(split), {}))  # a stream may know them only when it is read
    for name in asked or ():
        if name not in columns:
            raise ValueError(f"{option_name} {name!r}: no such column; the columns are {columns}")
    names = asked or next((names for names in usual if set(names) <= set(columns)), None)
    if names is None:
        raise ValueError(f"give {option_name}: none of the usual names is among the columns {columns}")
    return names


def check_texts(name: str, split: Dataset, column: str, option_name: str = "text_column_name") -> None:
    """Refuse a column that is missing, or that holds anything but texts."""
    if column not in split.column_names:
        raise ValueError(f"split {name!r} has no column {column!r}; its columns: {split.column_names}")
    feature = split.features[column]
    if getattr(feature, "dtype", None) not in ("string", "large_string"):
        raise ValueError(f"{option_name} {column!r} holds {feature}, not text")
    texts = split[column][:]
    if None in texts:
        raise ValueError(f"split {name!r} has no text in row {texts.index(None)} of column {column!r}")


def complete_splits(
    splits: Mapping[str, Dataset], args: SplitArguments, seed: int, notes: list[str]
) -> tuple[dict[str, Dataset], list[str]]:
    """The splits "train", "validation" and, if there is one or a share is asked for, "test".

    Splits that are missing are cut from train, and a sentence about it is added to `notes`. The second value holds the
    names of the splits that the data set came with.
    """
    names = {role: next((name for name in splits if name.startswith(role)), None) for role in ROLES}
    own = {role: splits[name] for role, name in names.items() if name is not None}
    if "train" in own:
        train = own["train"]
    elif len(splits) == 1:
        ((name, train),), own = splits.items(), {}
        notes.append(f"The data set has only the split {name!r}; train, validation and test are all cut from it.")
    else:
        raise ValueError(f"no split to train on among {list(splits)}")

    shares = {"validation": args.validation_split_percentage, "test": args.test_split_percentage}
    missing = {role: share for role, share in shares.items() if role not in own and share > 0}
    sizes = {role: max(1, round(len(train) * share / 100)) for role, share in missing.items()}
    rows_left = len(train)
    for role, size in sizes.items():
        if size >= rows_left:
            raise ValueError(f"train has {len(train)} rows: too few to cut a {role} split from it")
        rows_left -= size
        notes.append(f"There is no {role} split: {size} rows of train were taken for it (seed {seed}).")
    if "validation" not in own | sizes:
        raise ValueError("there is no validation split: give a validation_split_percentage above 0")
    complete = dict(own)
    if sizes:
        parts = train.train_test_split(test_size=sum(sizes.values()), seed=seed)
        complete["train"], start = parts["train"], 0
        for role, size in sizes.items():
            complete[role] = parts["test"].select(range(start, start + size))
            start += size
    else:
        complete["train"] = train.shuffle(seed=seed)
    return {role: complete[role] for role in ROLES if role in complete}, list(own)


def limit_splits(splits: dict[str, Dataset], args: SplitArguments, seed: int) -> dict[str, Dataset]:
    """The splits with at most `max_train_samples` and `max_eval_samples` rows, which the seed picks."""
    limited = {}
    for name, split in splits.items():
        limit = args.max_train_samples if name == "train" else args.max_eval_samples
        is_cut = limit is not None and limit < len(split)
        limited[name] = split.shuffle(seed=seed).take(limit) if is_cut else split
    return limited
