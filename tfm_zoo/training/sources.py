"""Where texts come from: files, a folder or the Hub."""

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from glob import glob
from pathlib import Path
from typing import ClassVar

from datasets import Dataset, DatasetDict, IterableDataset, load_dataset, load_from_disk
from datasets.exceptions import DatasetGenerationError
from torch import Tensor
from typing_extensions import Self

from tfm_zoo.training import generated
from tfm_zoo.training.arguments import LoopArguments, Options, option
from tfm_zoo.training.byte_ranges import SHARD, in_ranges
from tfm_zoo.training.wording import line_of

logger = logging.getLogger(__name__)
#: suffix of a table's file -> the reader of `datasets` for it
TABLES = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}
TEXT_FILES = {".txt": "text", **TABLES}


@dataclass(frozen=True)
class DataArguments(Options):
    """Which data set a recipe reads, and how much of it. Names are those of transformers' examples."""

    roles: ClassVar[Sequence[str]] = ("train", "validation")
    file_types: ClassVar[Mapping[str, str]] = TABLES
    built_in: ClassVar[Callable[[], DatasetDict]]  # makes the data set that needs no network
    #: what a reader of the figures must know of it
    built_in_note: ClassVar[str] = "The data set is generated, from templates. It tests the machinery alone."
    text_rows: ClassVar[str] = "document"  # what a row of a text file is, if not streamed: a "document" or a "line"
    streaming: ClassVar[bool] = False
    train_split_name: ClassVar[str | None] = None
    test_split_percentage: ClassVar[float] = 0

    dataset_name: str | None = option(None, "Hub id or local folder; default: 'generated', the built-in data set.")
    dataset_config_name: str | None = option(None, "Configuration of the data set.")
    train_file: str | None = option(None, "CSV, TSV, JSON (lines) or Parquet file, instead of dataset_name.")
    validation_file: str | None = option(None, "Such a file to validate on.")
    validation_split_percentage: float = option(
        10, "Percentage of train to validate on if there is no validation split.", at_least=0
    )
    max_train_samples: int | None = option(None, "Use this many training examples, picked by the seed.", at_least=1)
    max_eval_samples: int | None = option(None, "Likewise for the validation split.", at_least=1)
    preprocessing_num_workers: int | None = option(None, "Processes that tokenize.", at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        files = self.files()
        if files and self.dataset_name:
            raise ValueError("give either dataset_name or train_file and other files, not both")
        if files and "train" not in files:
            names = " and ".join(f"{role}_file" for role in files)
            raise ValueError(f"{names}: files to evaluate on need a train_file")
        validation, test = self.validation_split_percentage, self.test_split_percentage
        if validation + test >= 100:
            raise ValueError(f"{validation:g} % to validate and {test:g} % to test on must leave something to train on")

    def resolved(self) -> Self:
        """These options with a data set, the built-in one if they name none."""
        if self.source:
            return self
        logger.warning("No data set and no file was named: using the built-in GENERATED data")
        return replace(self, dataset_name=generated.NAME)

    def check_loop(self, args: LoopArguments) -> None:
        """Refuse options that need the length of the data, which is unknown for a stream."""
        if not self.streaming:
            return
        if self.max_train_samples:
            raise ValueError("max_train_samples is for texts in memory; with streaming give max_train_steps alone")
        if not args.max_train_steps:
            raise ValueError("streaming needs max_train_steps: the number of steps in a pass over a stream is unknown")
        for name in ("gradual_unfreezing", "checkpointing_steps"):
            if getattr(args, name) == "epoch":
                raise ValueError(f"{name} 'epoch': a stream has no epochs; give a number of steps")

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
        return {role: file for role in self.roles if (file := getattr(self, f"{role}_file"))}

    def row_error(self, split: str, row: int, message: str, column: str | None = None) -> ValueError:
        """The error for a row. `{row}` in the message becomes its place: a line, if the split is one file of lines."""
        files = matching_files(self.files().get(split, ""))
        line = line_of(files[0], row) if len(files) == 1 else None
        if line is None:
            place, note = f"row {row}", " (rows are counted from 0, without a header)"
        else:
            place, note = f"line {line} of {files[0].name}", ""
        place += f"{' of' if line is None else ','} column {column!r}" if column else ""
        return ValueError(message.replace("{row}", place) + note)

    def load_file(self, split: str, file: str) -> Dataset | IterableDataset:
        """The rows of a split's file, or of all files that fit a pattern."""
        files = matching_files(file)
        if not files:
            raise FileNotFoundError(f"{split}_file {file!r}: no such file")
        suffix, *others = sorted({path.suffix for path in files})
        if others:
            raise ValueError(f"{split}_file {file!r} fits files of several kinds: {', '.join([suffix, *others])}")
        if suffix not in self.file_types:
            raise ValueError(f"{split}_file {file!r}: expected one of {', '.join(self.file_types)}, not {suffix!r}")
        if not any(path.stat().st_size for path in files):
            raise ValueError(f"there is no text in the {split} split: {split}_file {file!r} is empty")
        if self.streaming and suffix in (".txt", ".jsonl") and any(path.stat().st_size > SHARD for path in files):
            return in_ranges(files, at_empty_lines=self.text_rows == "line")
        text_rows = "line" if self.streaming else self.text_rows
        options = {".tsv": {"sep": "\t"}, ".txt": {"sample_by": text_rows}}.get(suffix, {})
        options |= {"data_files": [*map(str, files)], "split": "train", "streaming": self.streaming}
        try:
            return in_parts(load_dataset(self.file_types[suffix], **options))
        except DatasetGenerationError as error:
            raise ValueError(f"{split}_file {file!r} cannot be read: {error.__cause__ or error}") from error
        except ValueError as error:  # such as that of a CSV file with nothing but a header
            raise ValueError(f"{split}_file {file!r} gives no row; does it hold only a header? ({error})") from error


@dataclass(frozen=True)
class StreamedArguments(DataArguments):
    """The options of a data set that need not fit into memory or onto the disk."""

    file_types: ClassVar = TEXT_FILES

    text_column_name: str | None = option(None, "Column of the texts; default: 'text', or the only one.")
    streaming: bool = option(False, "Read the training texts while training; needs max_train_steps.")
    train_split_name: str | None = option(None, "Split to train on; default: the one that begins with 'train'.")

    @property
    def files_identity(self) -> str | None:
        """A digest of the streamed files' names and sizes, wherever they lie; None if no files are streamed."""
        if not (self.streaming and self.train_file):
            return None
        return digest(f"{path.name} {path.stat().st_size}" for path in matching_files(self.train_file))


@dataclass(frozen=True)
class SplitArguments(DataArguments):
    """The options of a data set of independent rows, from which a validation and a test split can be cut."""

    roles: ClassVar[Sequence[str]] = ("train", "validation", "test")

    test_file: str | None = option(None, "CSV, TSV, JSON (lines) or Parquet file to test on.")
    test_split_percentage: float = option(0, "Percentage of train to test on if there is no test split.", at_least=0)
    max_eval_samples: int | None = option(None, "Likewise for the validation and the test split.", at_least=1)


def load_source(args: DataArguments) -> Mapping[str, Dataset | IterableDataset]:
    """The splits that the options name, unchanged; an error names the file or data set that cannot be read."""
    if files := args.files():
        return {split: args.load_file(split, file) for split, file in files.items()}
    name = args.dataset_name
    if args.is_generated or (Path(name) / "dataset_dict.json").exists():
        splits = args.built_in() if args.is_generated else load_from_disk(name)
        return {split: in_parts(rows, args.streaming) for split, rows in splits.items()}
    try:
        splits = load_dataset(name, args.dataset_config_name, streaming=args.streaming)
        return {split: in_parts(rows) for split, rows in splits.items()}
    except ConnectionError as error:
        raise ValueError(
            f"dataset_name {name!r}: no such folder, and the Hub cannot be reached;"
            f" {generated.NAME!r} is a data set that needs neither"
        ) from error
    except DatasetGenerationError as error:
        raise ValueError(f"dataset_name {name!r} cannot be read: {error.__cause__ or error}") from error


def in_parts(rows: Dataset | IterableDataset, streaming: bool = False) -> Dataset | IterableDataset:
    """The rows. Streamed rows with few shards are split into as many shards as their format allows."""
    if isinstance(rows, Dataset):
        return rows.to_iterable_dataset(max(1, min(256, len(rows) // 10_000))) if streaming else rows
    return rows.reshard() if rows.num_shards < 256 else rows  # splits Parquet by groups of rows


def matching_files(file: str) -> list[Path]:
    """The file of this name, or the files that match it as a pattern."""
    path = Path(file)
    return [path] if path.is_file() else sorted(path for path in map(Path, glob(file)) if path.is_file())


def digest(parts: Iterable[str | Tensor]) -> str:
    """A short digest of texts or of tensors on the CPU, by which a resumed run recognises them."""
    sha = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else memoryview(part.numpy()).cast("B")
        sha.update(len(data).to_bytes(8, "big"))
        sha.update(data)
    return sha.hexdigest()[:16]


def text_column(rows: Dataset | IterableDataset, asked: str | None) -> str:
    """The column of the texts: the one that `text_column_name` names, else the only one, else "text"."""
    usual = rows.column_names if len(rows.column_names or ()) == 1 else ["text"]
    return find_columns(rows, asked, [usual], "text_column_name")[0]


def find_columns(
    split: Dataset | IterableDataset, asked: str | list[str] | None, usual: Sequence[list[str]], option_name: str
) -> list[str]:
    """The column or columns that an option names, else the first of the usual ones that exist."""
    asked = [asked] if isinstance(asked, str) else asked
    columns = split.column_names or list(next(iter(split), {}))  # a stream may know them only when it is read
    for name in asked or ():
        if name not in columns:
            raise ValueError(f"{option_name} {name!r}: no such column; the columns are {listed(columns)}")
    names = asked or next((names for names in usual if set(names) <= set(columns)), None)
    if names is None:
        raise ValueError(
            f"give {option_name}: none of the usual names ({names_in(usual)}) is among the columns {listed(columns)}"
        )
    return names


def names_in(usual: Sequence[list[str]]) -> str:
    """The usual names as one text: "a, b", and "a and b" for two columns that belong together."""
    return ", ".join(dict.fromkeys(" and ".join(names) for names in usual))


def listed(columns: list[str]) -> str:
    """The columns of a table, for an error; with a hint if they look like a header with semicolons."""
    is_other = len(columns) == 1 and ";" in columns[0]
    hint = "; is the file separated by semicolons? A .csv file needs commas, a .tsv file tabs" if is_other else ""
    return f"{columns}{hint}"


def check_column(name: str, split: Dataset, column: str) -> None:
    """Refuse a split without this column."""
    if column not in split.column_names:
        raise ValueError(f"split {name!r} has no column {column!r}; its columns: {listed(split.column_names)}")


def checked_texts(
    args: DataArguments, name: str, split: Dataset, column: str, option_name: str = "text_column_name"
) -> list[str]:
    """The texts of a column. Refuses a column that is missing or holds anything else, and a text that is missing."""
    check_column(name, split, column)
    feature = split.features[column]
    if getattr(feature, "dtype", None) not in ("string", "large_string"):
        raise ValueError(f"{option_name} {column!r} holds {feature}, not text")
    texts = split[column][:]
    if None in texts:
        raise args.row_error(name, texts.index(None), f"split {name!r} has no text in {{row}}", column)
    return texts
