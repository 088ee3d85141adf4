"""Vectors on a disk, whoever wrote them: a folder of Parquet parts, a file of Parquet, or an array of NumPy."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from ..utils.folder_kinds import ARRAYS, CORPUS, FAISS
from .contents import read_json

#: rows that are read at once
ROWS = 4096
#: the columns of texts and of vectors that are looked for where no name is given
TEXT, VECTOR = "text", "embedding"


def unfinished(path: Path) -> str | None:
    """What is said of a folder that `predict.py` has not filled yet."""
    about = path / CORPUS
    wanted = read_json(about).get("rows", 0) if about.is_file() else 0
    done = sum(parquet(part).metadata.num_rows for part in path.glob("*.parquet")) if wanted else 0
    if done >= wanted:
        return None
    return f"{path} is unfinished, with {done:,} of {wanted:,} rows: give the command of predict.py again, to go on"


class Store:
    """Vectors on a disk.

    Args:
        path: a folder of Parquet parts, which are read in the order of their names; a `.parquet` file; or a `.npy` file
            that holds an array, `(rows, size)`.
        vector_column: the column of vectors in Parquet; by default `embedding`.
        text_column: the column of texts in Parquet, if there is one; by default `text`, where that is there.

    Raises:
        FileNotFoundError: if there is nothing there.
        ValueError: for a file of another kind, and for a column that is not there. The message names it.
    """

    def __init__(self, path: str | Path, vector_column: str | None = None, text_column: str | None = None):
        self.path, self.folder = Path(path), Path(path) if Path(path).is_dir() else Path(path).parent
        if self.path.is_dir():
            self.parts = sorted(self.path.glob("*.parquet"))
        else:
            self.parts = [self.path] if self.path.is_file() else []
        if not self.parts:
            arrays = f"; {self.path / '*.npy'} are stores of their own" * any(self.path.glob("*.npy"))
            what = f"holds no *.parquet{arrays}" if self.path.is_dir() else "there is no such file or folder"
            raise FileNotFoundError(f"{path}: {what}.")
        if (suffix := self.parts[0].suffix) not in ARRAYS:
            vectors = f"faiss.read_index({str(path)!r}).reconstruct_n()"
            advice = f" Save those of the index as an array: numpy.save('vectors.npy', {vectors})." * (suffix in FAISS)
            kind = suffix or "such a file"
            raise ValueError(f"{path}: vectors are read from .parquet and .npy, not from {kind!r}.{advice}")
        self.is_array = suffix == ".npy"
        self.vector_column, self.text_column = vector_column or VECTOR, text_column
        if self.is_array:
            if text_column is not None:
                raise ValueError(f"{path} has no column {text_column!r}: an array holds vectors alone.")
            return
        if text_column is None and TEXT in self.columns:
            self.text_column = TEXT
        for kind, name in {"vector": self.vector_column, "text": text_column}.items():
            if name is not None and name not in self.columns:
                known = f"its columns are {', '.join(self.columns)}"
                raise ValueError(
                    f"{path} has no column {name!r}; {known}: record it with the right one ({kind}_column_name)."
                )

    @cached_property
    def columns(self) -> list[str]:
        return parquet(self.parts[0]).schema_arrow.names

    @cached_property
    def array(self) -> np.ndarray:
        """The array of a `.npy` file, which stays on the disk."""
        try:
            array = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise ValueError(f"{self.path} cannot be read: {error}") from error
        if array.ndim != 2 or array.dtype.kind != "f":
            read = "vectors are read from an array (rows, size) of float16, float32 or float64"
            raise ValueError(f"{self.path} holds {array.dtype} of shape {array.shape}: {read}.")
        return array

    @cached_property
    def numbers(self) -> dict[Path, range]:
        """The numbers of each part's rows. (For a store that has changed, `verify` sets those that were recorded.)"""
        return numbered({part: self.rows_of(part) for part in self.parts})

    def rows_of(self, part: Path) -> int:
        """How many rows a part has."""
        if self.is_array:
            return len(self.array)
        return parquet(part).metadata.num_rows

    def tables(self, part: Path, texts: bool = False, vectors: bool = True) -> Iterator[tuple[Any, Any]]:
        """The texts, if asked for, and the vectors of a part, portion by portion."""
        if self.is_array:
            yield from ((None, self.array[start : start + ROWS]) for start in range(0, len(self.array), ROWS))
            return
        names = [self.text_column] * texts + [self.vector_column] * vectors
        file, first = parquet(part), 0
        if missing := [name for name in names if name not in file.schema_arrow.names]:
            raise ValueError(f"{part} has no column {missing[0]!r}: it has {', '.join(file.schema_arrow.names)}")
        for batch in file.iter_batches(ROWS, columns=names):
            read = texts_of(batch[self.text_column], first, part) if texts else None
            yield read, (vectors_of(batch[self.vector_column], first, part) if vectors else None)
            first += len(batch)

    def texts(self, rows: Sequence[int]) -> dict[int, str]:
        """The texts of these rows, which are sorted, by row; those of rows that are gone are left out."""
        return self._pick(rows, texts=True)

    def vectors(self, rows: Sequence[int]) -> dict[int, np.ndarray]:
        """The vectors of these rows, which are sorted, by row; those of rows that are gone are left out."""
        return self._pick(rows, texts=False)

    def _pick(self, rows: Sequence[int], texts: bool) -> dict[int, Any]:
        found = {}
        for part, numbers in self.numbers.items():
            wanted, first = [row for row in rows if row in numbers], numbers.start
            for read, vectors in self.tables(part, texts=texts, vectors=not texts) if wanted else ():
                values = read if texts else vectors
                found |= {row: values[row - first] for row in wanted if first <= row < first + len(values)}
                first += len(values)
                if first > wanted[-1]:
                    break
        return found


def numbered(counts: Mapping[Any, int]) -> dict[Any, range]:
    """The numbers of each part's rows, by how many rows the parts have, one behind the other."""
    ends = [*accumulate(counts.values())]
    return {part: range(*bounds) for part, *bounds in zip(counts, [0, *ends], ends, strict=False)}


def parquet(part: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(part)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{part} cannot be read: {error}") from error


def texts_of(column: Any, first: int, part: Path) -> list[str]:
    texts = column.to_pylist()
    if (bad := next((row for row, text in enumerate(texts) if not isinstance(text, str)), None)) is not None:
        raise ValueError(f"{part}, row {first + bad} (counted from 0) is not a text: {texts[bad]!r}")
    return texts


def vectors_of(column: Any, first: int, part: Path) -> np.ndarray:
    """The vectors of a column, `(rows, size)`: lists of numbers, or texts of such as pgvector dumps them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        try:
            return np.array([json.loads(text) for text in column.to_pylist()], dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{part}: its texts from row {first} on are not vectors: {error}") from error
    is_list = any(kind_of(kind) for kind_of in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))
    if not is_list or not pa.types.is_floating(kind.value_type):
        raise ValueError(f"{part}: a column of {kind} holds no vectors (lists of numbers).")
    if column.null_count:
        bad = column.is_null().to_pylist().index(True)
        raise ValueError(f"{part}, row {first + bad} (counted from 0) has no vector.")
    flat = column.flatten()
    if flat.null_count:
        raise ValueError(f"{part}: a vector from row {first} on lacks numbers.")
    if len(np.unique(pc.list_value_length(column).to_numpy(zero_copy_only=False))) > 1:
        raise ValueError(f"{part}: its vectors from row {first} on differ in size.")
    return flat.to_numpy(zero_copy_only=False).reshape(len(column), -1)
