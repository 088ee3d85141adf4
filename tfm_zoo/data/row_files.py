"""Files and data sets of rows: how they are read, their columns, and the line at which a row begins."""

import codecs
import csv
import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from glob import glob
from itertools import islice
from pathlib import Path
from types import NoneType
from typing import Any, TextIO

import pandas
from datasets import Dataset, Features, IterableDataset, Value, load_dataset, load_dataset_builder, load_from_disk
from datasets.exceptions import DatasetGenerationError
from pandas.errors import ParserError

from tfm_zoo.data.byte_ranges import in_ranges
from tfm_zoo.utils.pointers import refuse_pointer
from tfm_zoo.utils.quiet import silenced_reading

#: suffix of a file -> the reader of `datasets` for it: of tables, and of all files
TABLES = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}
READERS = {".txt": "text", **TABLES}
#: cells of CSV may be quoted (RFC 4180); those of TSV stand as they are, and quotation marks are a part of them
DIALECTS = {",": {}, "\t": {"quoting": csv.QUOTE_NONE}}
DELIMITERS = {".csv": ",", ".tsv": "\t"}
NAMES = {",": "commas", "\t": "tabs", ";": "semicolons"}
#: UTF-8, in which a byte order mark at the beginning of a file is not text
ENCODING = "utf-8-sig"
BLOCK = 10_000  # rows of a CSV file that `datasets` reads at once, and finds types for


def rows_of_files(
    files: Sequence[Path],
    name: str,
    streaming: bool,
    text_rows: str | None = None,
    whole_up_to: int = 0,
    keep_as_text: bool = False,
) -> Dataset | IterableDataset:
    """The rows of files of one kind; empty files have no rows.

    Args:
        name: where the files were named, for errors.
        streaming: whether rows are read when they are asked for.
        text_rows: what a row of a text file is: a "line", where an empty one ends a document, or a "document". Streamed
            files have a row for each line.
        whole_up_to: bytes; streamed files of lines have several shards if one of them is larger.
        keep_as_text: whether cells of CSV and TSV stay as they are written, such as "01", even if all are numbers.

    Raises:
        ValueError: for a file that is not what its name says. The message names it, and the line if it can.
    """
    suffix = suffix_of(files[0])
    for file in files:
        check_file(file)
        if suffix in DELIMITERS:
            refuse_other_delimiters(file, DELIMITERS[suffix])
    if streaming and suffix in (".txt", ".jsonl") and any(file.stat().st_size > whole_up_to for file in files):
        return in_ranges(files, at_empty_lines=text_rows == "line")
    files = [file for file in files if file.stat().st_size]
    try:
        options = reading_options(READERS[suffix], files, DELIMITERS.get(suffix, ""), keep_as_text)
        options |= {"sample_by": "line" if streaming else text_rows} if suffix == ".txt" else {}
        options |= {"data_files": [*map(str, files)], "split": "train", "streaming": streaming}
        return in_shards(load(READERS[suffix], **options))
    except (DatasetGenerationError, UnicodeDecodeError, ParserError) as error:
        why = error.__cause__ or error
        advice = " (save it as UTF-8)" if isinstance(why, UnicodeDecodeError) else ""
        raise ValueError(f"{name} cannot be read: {why}{advice}") from error
    except ValueError as error:  # such as that of a CSV file with nothing but a header
        raise ValueError(f"{name} gives no row; does it hold only a header? ({error})") from error


def splits_of(
    name: str, config: str | None = None, streaming: bool = False, keep_as_text: bool = False
) -> dict[str, Dataset | IterableDataset]:
    """The splits of a data set on the Hub, in a folder of files, or saved by `save_to_disk`.

    Raises:
        ValueError: for a file of the folder that is not what its name says.
        ConnectionError: if there is no such folder, and the Hub cannot be reached.
    """
    if (Path(name) / "dataset_dict.json").exists():
        return {split: as_asked(rows, streaming) for split, rows in load_from_disk(name).items()}
    options: dict[str, Any] = {}
    try:
        if Path(name).is_dir():
            builder = load_dataset_builder(name, config)
            files = [Path(file) for each in (builder.config.data_files or {}).values() for file in each]
            for file in files:
                check_file(file)
            options = reading_options(builder.name, files, getattr(builder.config, "sep", ""), keep_as_text)
            if builder.config.features:  # which the folder's README.md declares
                options.pop("converters", None)
                options.pop("columns", None)
        splits = load(name, config, streaming=streaming, **options)
        return {split: in_shards(rows) for split, rows in splits.items()}
    except (DatasetGenerationError, UnicodeDecodeError, ParserError) as error:
        raise ValueError(f"dataset_name {name!r} cannot be read: {error.__cause__ or error}") from error


def reading_options(kind: str, files: Sequence[Path], delimiter: str, keep_as_text: bool) -> dict[str, Any]:
    """The options of [`load`] for files of a kind: those of its reader, and `columns`. Of cells of CSV and TSV only
    empty ones are missing: "NA" and "null" are texts."""
    if kind == "text":
        return {"encoding": ENCODING}
    if kind != "csv":
        return {}
    options = {"sep": delimiter, "encoding": ENCODING, "keep_default_na": False, "na_values": [""]}
    options |= DIALECTS.get(delimiter, {})
    for file in files[1:]:
        first_rows(file, 1, options)  # refuses a row that is longer than the header
    first = first_rows(files[0], BLOCK, options)
    columns = [*first.columns]
    # A later block of a text column may hold numbers alone, which pandas would read as such: "007" as 7.
    texts = [name for name in columns if first[name].map(lambda value: isinstance(value, str)).any()]
    return {**options, "columns": columns, "converters": dict.fromkeys(columns if keep_as_text else texts, cell)}


def first_rows(file: Path, number: int, options: dict[str, Any]) -> pandas.DataFrame:
    """The first rows of a CSV or TSV file. Refuses a file whose first row has more cells than its header."""
    rows = pandas.read_csv(file, nrows=number, **options)
    if not isinstance(rows.index, pandas.RangeIndex):  # its first cells would be taken for names of the rows
        size, longer = len(rows.columns), len(rows.columns) + rows.index.nlevels
        advice = "; is a text with a comma not in quotation marks?" if options["sep"] == "," else ""
        raise ParserError(f"{file}: its first row has {longer} cells, and its header {size}{advice}")
    return rows


def cell(text: str) -> str | None:
    return text or None


def load(*source: str | None, columns: Sequence[str] = (), **options: Any) -> Any:
    """What `load_dataset` reads. `columns` are those of CSV whose types nobody declared. One may have numbers in its
    first rows and text further on: then the cells of all columns are texts."""
    with silenced_reading():
        try:
            return load_dataset(*source, **options)
        except DatasetGenerationError:
            if not columns:
                raise
            texts = Features(dict.fromkeys(columns, Value("string")))
            return load_dataset(*source, **options | {"features": texts, "converters": None})


def check_file(file: Path) -> None:
    """Refuses a pointer of Git LFS, and a text file in UTF-16 or, of TSV, in which a line has more or fewer cells than
    the header: a cell with a tab or a line break would shift all others."""
    refuse_pointer(file)
    if READERS.get(suffix_of(file)) in (None, "parquet"):  # no text file
        return
    refuse_utf_16(file)
    if suffix_of(file) == ".tsv":
        with file.open(encoding=ENCODING, errors="replace") as lines:
            sizes = ((number, line.count("\t") + 1) for number, line in enumerate(lines, 1) if line.strip(" \n"))
            _, columns = next(sizes, (1, 1))
            if wrong := next(((number, size) for number, size in sizes if size != columns), None):
                found = f"expected {columns} cells, as in the header, and found {wrong[1]}"
                advice = "a .tsv file is not quoted, so that no cell can hold a tab or a line break; in .csv it can"
                raise ValueError(f"{file}, line {wrong[0]}: {found} ({advice})")


def refuse_other_delimiters(file: Path, delimiter: str) -> None:
    """Refuses a CSV or TSV file whose header is divided by something else. It is not for folders, whose README.md may
    declare another delimiter."""
    with file.open(encoding=ENCODING, errors="replace") as lines:
        header, row = lines.readline().strip(), lines.readline()
    found = max(NAMES, key=header.count)
    lacks_delimiter = delimiter not in header and not header.startswith('"')
    # (A table of one column has no delimiter, and may have such a character in the column's name alone.)
    has_another = found in header and (found in row or not row)
    if lacks_delimiter and has_another:
        raise ValueError(f"{file} has {NAMES[found]} ({header!r}): a .csv file needs commas, a .tsv file tabs")


def refuse_utf_16(file: Path) -> None:
    with file.open("rb") as content:
        beginning = content.read(1024)
    if beginning.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in beginning:
        raise ValueError(f"{file} is UTF-16 or binary: save it as UTF-8")


def read_text(file: str | Path) -> str:
    """The text of a file in UTF-8, with or without a byte order mark."""
    refuse_pointer(Path(file))
    refuse_utf_16(Path(file))
    try:
        return Path(file).read_text(ENCODING)
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8: {error} (save it as UTF-8)") from error


def line_of(file: Path, row: int) -> int | None:
    """The line, counted from 1, at which row number `row`, counted from 0, begins in a CSV, TSV or JSON-lines file;
    None for any other file."""
    with suppress(csv.Error, ValueError), file.open(encoding=ENCODING, newline="") as lines:
        if suffix_of(file) in DELIMITERS:
            rows = _rows_of_table(lines, DELIMITERS[suffix_of(file)])
            return next(islice(rows, row + 1, None), None)  # after a header
        if suffix_of(file) in (".json", ".jsonl"):
            kinds = (dict, NoneType)  # `datasets` makes a row of a line that is null, too
            rows = (number for number, line in enumerate(lines, 1) if line.strip() and type(json.loads(line)) in kinds)
            return next(islice(rows, row, None), None)  # `None` if the file is one list
    return None


def _rows_of_table(lines: TextIO, delimiter: str) -> Iterator[int]:
    """The lines at which rows begin: a cell in quotation marks may hold several lines."""
    reader, begin = csv.reader(lines, delimiter=delimiter, **DIALECTS[delimiter]), 1
    for cells in reader:
        if len(cells) > 1 or any(cell.strip() for cell in cells):  # else it is an empty line, which is not a row
            yield begin
        begin = reader.line_num + 1


def as_asked(rows: Dataset, streaming: bool) -> Dataset | IterableDataset:
    """Rows in memory, or as a stream of several shards, which many readers may share."""
    return rows.to_iterable_dataset(max(1, min(256, len(rows) // 10_000))) if streaming else rows


def in_shards(rows: Dataset | IterableDataset) -> Dataset | IterableDataset:
    """Streamed rows in as many shards as their format allows, so that many readers may share them. Rows in memory stay
    as they are."""
    is_divided = isinstance(rows, Dataset) or rows.num_shards >= 256
    return rows if is_divided else rows.reshard()  # splits Parquet by groups of rows


def matching_files(file: str) -> list[Path]:
    """The file of this name, or the files that match it as a pattern, in which ** stands for any folders."""
    paths = [file] if Path(file).is_file() else glob(file, recursive=True)
    return sorted(path for path in map(Path, paths) if path.is_file())


def suffix_of(file: Path) -> str:
    """The suffix by which the kind of a file is known: ".csv" of `DATA.CSV`, too."""
    return file.suffix.lower()


def kind_of(files: Sequence[Path], kinds: Collection[str], name: str) -> str:
    """The suffix of all files. Refuses a missing file, files of several kinds, and a kind that is not one of `kinds`.
    `name` says in errors where the files were named."""
    if not files:
        raise FileNotFoundError(f"{name}: no such file")
    suffix, *others = sorted(set(map(suffix_of, files)))
    if others:
        raise ValueError(f"{name} fits files of several kinds: {', '.join([suffix, *others])}")
    if suffix not in kinds:
        raise ValueError(f"{name}: expected one of {', '.join(kinds)}, not {suffix!r}")
    return suffix


def columns_of(rows: Dataset | IterableDataset) -> list[str]:
    """The names of the columns. A stream may know them only when it is read."""
    return rows.column_names or list(next(iter(rows.with_format(None)), {}))


def find_text_column(rows: Dataset | IterableDataset, asked: str | None, option_name: str = "text_column_name") -> str:
    """The column of the texts: the one that the option names, else the only one, else "text"."""
    columns = columns_of(rows)
    return find_columns(rows, asked, [columns if len(columns) == 1 else ["text"]], option_name)[0]


def find_columns(
    split: Dataset | IterableDataset, asked: str | list[str] | None, usual: Sequence[list[str]], option_name: str
) -> list[str]:
    """The column or columns that an option names, else the first of the usual ones that exist."""
    asked = [asked] if isinstance(asked, str) else asked
    columns = columns_of(split)
    for name in asked or ():
        if name not in columns:
            raise ValueError(f"{option_name} {name!r}: no such column; the columns are {columns}")
    names = asked or next((names for names in usual if set(names) <= set(columns)), None)
    if names is None:
        raise ValueError(f"give {option_name}: no usual name ({names_in(usual)}) is in the columns {columns}")
    return names


def names_in(usual: Sequence[list[str]]) -> str:
    """The usual names as one text: "a, b", and "a and b" for two columns that belong together."""
    return ", ".join(dict.fromkeys(" and ".join(names) for names in usual))
