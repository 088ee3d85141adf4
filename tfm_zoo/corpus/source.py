"""A corpus: the rows of a data set as a stream, in a fixed order, which is never held as a whole."""

import hashlib
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import IterableDataset
from datasets.exceptions import DatasetsError

from ..data.row_files import (
    READERS,
    columns_of,
    find_columns,
    find_text_column,
    kind_of,
    matching_files,
    rows_of_files,
    splits_of,
    suffix_of,
)
from ..data.splits import digest
from ..utils.pointers import refuse_pointer

#: rows that are read at once
ROWS = 1024
#: bytes of texts that are read in a moment
SMALL = 32 << 20


class Shard(NamedTuple):
    """What the first reading of a shard has found: its rows, a digest of its texts, the types of the columns that are
    kept, and the first row that is not text, with what it holds."""

    rows: int
    digest: str
    schema: pa.Schema
    bad: tuple[int, str] | None = None


@dataclass(frozen=True)
class Corpus:
    """The rows of a data set, shard after shard.

    Args:
        shards: streams, in the order of the rows.
        column: of the texts.
        keep: other columns, which results are written beside.
        source: the arguments of [`Corpus.open`] that name it, by which it can be read again.
    """

    shards: Sequence[IterableDataset]
    column: str
    keep: Sequence[str] = ()
    source: dict[str, Any] | None = None

    @classmethod
    def open(
        cls,
        dataset_name: str | None = None,
        data_files: Sequence[str] = (),
        dataset_config_name: str | None = None,
        split: Sequence[str] = (),
        text_column: str | None = None,
        keep: Sequence[str] = (),
    ) -> "Corpus":
        """The corpus in a data set or in files; nothing but names and the first rows is read.

        Args:
            dataset_name: a Hub id, a folder of files, or a folder that `save_to_disk` wrote.
            data_files: files or patterns (`corpus/*.parquet`) of Parquet, CSV, TSV, JSON lines, or lines of text.
            dataset_config_name: a configuration of the data set.
            split: its splits, one after the other; may be left out if there is only one.
            text_column: by default `text`, or the only column.
            keep: further columns.

        Raises:
            ValueError, OSError: if there is no such data set, file, split or column. The message names it.
        """
        if bool(dataset_name) == bool(data_files):
            raise ValueError("a corpus is a dataset_name or data_files: give one of the two")
        if data_files and (split or dataset_config_name):
            raise ValueError("split and dataset_config_name are of a dataset_name, and not of data_files")
        try:
            streams = from_files(data_files) if data_files else from_name(dataset_name, dataset_config_name, split)
            if not columns_of(streams[0]):
                raise ValueError(f"{dataset_name or ', '.join(data_files)}: there is no row")
            text_column = find_text_column(streams[0], text_column)
            if keep:
                find_columns(streams[0], [*keep], [], "keep_columns")
        except DatasetsError as error:
            raise ValueError(
                f"{dataset_name or ', '.join(data_files)} cannot be read: {error.__cause__ or error}"
            ) from error
        names = [*dict.fromkeys([text_column, *keep])]
        shards = [
            stream.select_columns(names).shard(stream.num_shards, index)
            for stream in streams
            for index in range(stream.num_shards)
        ]
        source = {"dataset_name": dataset_name, "data_files": [*data_files], "split": [*split]}
        source |= {"dataset_config_name": dataset_config_name, "text_column": text_column}
        return cls(shards, text_column, tuple(keep), {name: value for name, value in source.items() if value})

    def survey(self, index: int) -> Shard:
        """Reads a shard from beginning to end."""
        rows, digest, schemas, bad = 0, hashlib.sha256(), [], None
        for batch in self.shards[index].iter(batch_size=ROWS):
            texts = batch[self.column]
            texts = texts if isinstance(texts, list) else texts.to_pylist()
            wrong = next((row for row, text in enumerate(texts) if not isinstance(text, str)), None)
            if wrong is not None:
                bad = (rows + wrong, repr(texts[wrong]))
                break
            for text in texts:
                digest.update(text.encode() + b"\0")
            rows += len(texts)
            schemas.append(as_table(batch).select(self.keep).schema.remove_metadata())
        schema = pa.unify_schemas(schemas, promote_options="permissive") if schemas else pa.schema([])
        return Shard(rows, digest.hexdigest(), schema, bad)

    def tables(self, first: int) -> Iterator[pa.Table]:
        """The rows from the beginning of shard number `first` on."""
        return map(as_table, chain.from_iterable(shard.iter(batch_size=ROWS) for shard in self.shards[first:]))


class Cursor:
    """A place in a corpus, from which rows are read forwards. `sizes`: the rows of each shard."""

    def __init__(self, corpus: Corpus, sizes: Sequence[int]):
        self.corpus, self.starts = corpus, [0, *accumulate(sizes)]
        self.place, self.tables, self.rest = self.starts[-1], iter(()), None

    def read(self, rows: range) -> pa.Table:
        """These rows. Rows before them are passed over, or whole shards; only for rows that lie behind the place is a
        shard opened again."""
        shard = bisect_right(self.starts, rows.start) - 1
        if not self.starts[shard] <= self.place <= rows.start:
            self.place, self.tables, self.rest = self.starts[shard], self.corpus.tables(shard), None
        found = []
        while self.place < rows.stop:
            table = next(self.tables, None) if self.rest is None else self.rest
            if table is None:
                raise ValueError(f"the corpus has {self.place} rows, and had {self.starts[-1]} before")
            found.append(table.slice(max(0, rows.start - self.place), rows.stop - max(self.place, rows.start)))
            self.rest = table.slice(rows.stop - self.place) if self.place + len(table) > rows.stop else None
            self.place = min(self.place + len(table), rows.stop)
        return pa.concat_tables(found, promote_options="permissive")


def texts_again(source: dict[str, Any], rows: Sequence[int]) -> dict[int, str]:
    """The texts of these rows, which are sorted, by row; those of rows that are gone are left out.

    Args:
        source: `corpus`, the arguments of [`Corpus.open`]; and `shards`, how many rows each had, if that is known.
    """
    corpus, found = Corpus.open(**source["corpus"]), {}
    if shards := source.get("shards"):
        cursor = Cursor(corpus, shards)
        with suppress(ValueError):  # the corpus has fewer rows
            for row in rows:
                found[row] = cursor.read(range(row, row + 1))[corpus.column][0].as_py()
        return found
    first, waiting = 0, iter(rows)
    row = next(waiting, None)
    for table in corpus.tables(0):
        while row is not None and row < first + len(table):
            found[row] = table[corpus.column][row - first].as_py()
            row = next(waiting, None)
        first += len(table)
        if row is None:
            break
    return found


def digest_of_texts(corpus: Corpus, shards: int = 1) -> str | None:
    """The digest of all texts of a corpus, as `_corpus.json` has it; `None`, if there is something else than texts, or
    if the corpus has not so many shards, whose digests it is of."""
    if len(corpus.shards) != shards:
        return None
    found = [corpus.survey(shard) for shard in range(shards)]
    return None if any(shard.bad for shard in found) else digest(shard.digest for shard in found)


def are_small(patterns: Sequence[str]) -> bool:
    """Whether files of texts are there, and read in a moment."""
    found = [path for pattern in patterns for path in matching_files(pattern)]
    return bool(found) and sum(path.stat().st_size for path in found) <= SMALL


def as_table(batch: pa.Table | dict[str, list]) -> pa.Table:
    """A batch in the form of Arrow. Lines of JSON come as lists, since a column's type may be another in each line."""
    try:
        return batch if isinstance(batch, pa.Table) else pa.table(batch)
    except pa.ArrowException as error:
        raise ValueError(f"one of the columns {', '.join(batch)} holds values of several types: {error}") from error


def from_files(patterns: Sequence[str]) -> list[IterableDataset]:
    """The rows of files: all of one kind, each read once, in the order of their names within each pattern."""
    found: dict[str, Path] = {}
    for pattern in patterns:
        if not (matching := matching_files(pattern)):
            is_folder = ", but a folder: give it as dataset_name" if Path(pattern).is_dir() else ""
            raise FileNotFoundError(f"data_files {pattern!r}: no such file{is_folder}")
        found |= {os.path.abspath(path): path for path in matching}  # a file that fits two patterns is read once
    name = f"data_files {', '.join(map(repr, patterns))}"
    kind_of([*found.values()], READERS, name)
    files = [path for path in found.values() if has_rows(path)]
    if not files:
        raise ValueError(f"{name}: there is no text, the files are empty")
    rows = rows_of_files(files, name, streaming=True)
    return [rows if suffix_of(files[0]) in (".txt", ".jsonl") else rows.with_format("arrow")]


def has_rows(path: Path) -> bool:
    """Whether a file has rows, as far as its size or Parquet's metadata say. A `ValueError` names a broken file."""
    refuse_pointer(path)
    try:
        return path.stat().st_size > 0 and (suffix_of(path) != ".parquet" or pq.read_metadata(path).num_rows > 0)
    except pa.ArrowException as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def from_name(name: str, config: str | None, splits: Sequence[str]) -> list[IterableDataset]:
    """The splits of a data set that is on the Hub, in a folder, or saved by `save_to_disk`."""
    if Path(name).is_file():
        raise ValueError(f"dataset_name {name!r} is a file: give it as data_files")
    try:
        found = splits_of(name, config, streaming=True)
    except ConnectionError as error:
        raise ValueError(f"dataset_name {name!r}: no such folder, and the Hub cannot be reached") from error
    for split in splits:
        if split not in found:
            raise ValueError(f"split {split!r}: no such split; {name} has {', '.join(found)}")
    if not splits and len(found) > 1:
        raise ValueError(f"{name} has several splits: give --split with one or more of {', '.join(found)}")
    return [found[split].with_format("arrow") for split in splits or found]
