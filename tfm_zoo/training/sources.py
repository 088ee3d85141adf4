"""Where texts come from: files, a folder or the Hub, and how much of them is used."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from datasets import Dataset, DatasetDict, load_dataset, load_from_disk
from datasets.exceptions import DatasetGenerationError

from tfm_zoo.training import generated
from tfm_zoo.training.arguments import check_at_least, option


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

    dataset_name: str | None = option(None, "Hub id or local folder. 'generated', the default: the built-in data set.")
    dataset_config_name: str | None = option(None, "Configuration of the data set.")
    train_file: str | None = option(None, "CSV, TSV, JSON (lines) or Parquet file, instead of dataset_name.")
    validation_file: str | None = option(None, "Likewise, to validate on.")
    validation_split_percentage: float = option(10, "Share of train to validate on if there is no such split.")
    max_train_samples: int | None = option(None, "Use this many training examples, picked by the seed.")
    max_eval_samples: int | None = option(None, "Likewise of the validation split.")
    preprocessing_num_workers: int | None = option(None, "Processes that tokenize.")

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


def load_source(args: DataArguments) -> DatasetDict:
    """The splits that the arguments name, as they are.

    Raises:
        FileNotFoundError, ValueError: naming the file or data set that is missing or cannot be read.
    """
    if files := args.files():
        return DatasetDict({split: _load_file(split, file, args.file_types) for split, file in files.items()})
    name = args.dataset_name
    if name == generated.NAME:
        return generated.generated_reviews()
    if (Path(name) / "dataset_dict.json").exists():
        return load_from_disk(name)
    try:
        return load_dataset(name, args.dataset_config_name)
    except ConnectionError as error:
        raise ValueError(
            f"dataset_name {name!r}: no such folder, and the Hub cannot be reached;"
            f" {generated.NAME!r} is a data set that needs neither"
        ) from error
    except DatasetGenerationError as error:
        raise ValueError(f"dataset_name {name!r} cannot be read: {error.__cause__ or error}") from error


def find_columns(split: Dataset, asked: list[str] | None, usual: Sequence[list[str]], option_name: str) -> list[str]:
    """The columns that were asked for, else the first of the usual ones that are there."""
    columns = split.column_names
    if asked:
        missing = [name for name in asked if name not in columns]
        if missing:
            raise ValueError(f"{option_name} {missing[0]!r}: no such column; the columns are {columns}")
        return asked
    for names in usual:
        if set(names) <= set(columns):
            return names
    raise ValueError(f"give {option_name}: none of the usual names is among the columns {columns}")


def check_texts(name: str, split: Dataset, column: str) -> None:
    """Refuse a column that is missing, or holds anything but texts."""
    if column not in split.column_names:
        raise ValueError(f"split {name!r} has no column {column!r}; its columns: {split.column_names}")
    feature = split.features[column]
    if getattr(feature, "dtype", None) not in ("string", "large_string"):
        raise ValueError(f"text_column_name {column!r} holds {feature}, not text")
    texts = split[column][:]
    if None in texts:
        raise ValueError(f"split {name!r} has no text in row {texts.index(None)} of column {column!r}")


def _load_file(split: str, file: str, file_types: Mapping[str, str]) -> Dataset:
    path = Path(file)
    if not path.is_file():
        raise FileNotFoundError(f"{split}_file {file!r}: no such file")
    if path.suffix not in file_types:
        raise ValueError(f"{split}_file {file!r}: expected one of {', '.join(file_types)}, not {path.suffix!r}")
    options = {"sep": "\t"} if path.suffix == ".tsv" else {}
    options |= {"sample_by": "document"} if path.suffix == ".txt" else {}  # one text, and its line breaks kept
    try:
        return load_dataset(file_types[path.suffix], data_files=str(path), split="train", **options)
    except DatasetGenerationError as error:
        raise ValueError(f"{split}_file {file!r} cannot be read: {error.__cause__ or error}") from error
