"""Files and data sets of rows: kinds of files, columns, parts of a stream, and the line at which a row begins."""

import csv
import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from glob import glob
from itertools import islice
from pathlib import Path
from typing import TextIO

from datasets import Dataset, IterableDataset

#: suffix of a table's file -> the reader of `datasets` for it
TABLES = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}
TEXT_FILES = {".txt": "text", **TABLES}
DELIMITERS = {".csv": ",", ".tsv": "\t"}


def line_of(file: Path, row: int) -> int | None:
    """The line, counted from 1, at which row number `row`, counted from 0, begins in a CSV, TSV or JSON-lines file;
    None for any other file."""
    with suppress(csv.Error, ValueError), file.open(encoding="utf-8", newline="") as lines:
        if file.suffix in DELIMITERS:
            return next(islice(_rows_of_table(lines, DELIMITERS[file.suffix]), row + 1, None), None)  # after a header
        if file.suffix in (".json", ".jsonl"):
            rows = (number for number, line in enumerate(lines, 1) if line.strip() and type(json.loads(line)) is dict)
            return next(islice(rows, row, None), None)  # none, if the file is one list
    return None


def _rows_of_table(lines: TextIO, delimiter: str) -> Iterator[int]:
    """The lines at which rows begin: a cell in quotation marks may hold several lines."""
    reader, begin = csv.reader(lines, delimiter=delimiter), 1
    for cells in reader:
        if len(cells) > 1 or any(cell.strip() for cell in cells):  # else it is an empty line, which is no row
            yield begin
        begin = reader.line_num + 1


def in_parts(rows: Dataset | IterableDataset, streaming: bool = False) -> Dataset | IterableDataset:
    """The rows. Streamed rows with few shards are split into as many shards as their format allows."""
    if isinstance(rows, Dataset):
        return rows.to_iterable_dataset(max(1, min(256, len(rows) // 10_000))) if streaming else rows
    return rows.reshard() if rows.num_shards < 256 else rows  # splits Parquet by groups of rows


def matching_files(file: str) -> list[Path]:
    """The file of this name, or the files that match it as a pattern, in which ** stands for any folders."""
    paths = [file] if Path(file).is_file() else glob(file, recursive=True)
    return sorted(path for path in map(Path, paths) if path.is_file())


def kind_of(files: Sequence[Path], kinds: Collection[str], name: str) -> str:
    """The suffix of all files, which is one of these kinds. `name` says in errors where the files were named."""
    if not files:
        raise FileNotFoundError(f"{name}: no such file")
    suffix, *others = sorted({path.suffix for path in files})
    if others:
        raise ValueError(f"{name} fits files of several kinds: {', '.join([suffix, *others])}")
    if suffix not in kinds:
        raise ValueError(f"{name}: expected one of {', '.join(kinds)}, not {suffix!r}")
    return suffix


def columns_of(rows: Dataset | IterableDataset) -> list[str]:
    """The names of the columns. A stream may know them only when it is read."""
    return rows.column_names or list(next(iter(rows.with_format(None)), {}))


def find_text_column(rows: Dataset | IterableDataset, asked: str | None) -> str:
    """The column of the texts: the one that `text_column_name` names, else the only one, else "text"."""
    columns = columns_of(rows)
    return find_columns(rows, asked, [columns if len(columns) == 1 else ["text"]], "text_column_name")[0]


def find_columns(
    split: Dataset | IterableDataset, asked: str | list[str] | None, usual: Sequence[list[str]], option_name: str
) -> list[str]:
    """The column or columns that an option names, else the first of the usual ones that exist."""
    asked = [asked] if isinstance(asked, str) else asked
    columns = columns_of(split)
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
