"""Words that log, errors and cards share: how many things there are, and where a row stands."""

import csv
import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TextIO

DELIMITERS = {".csv": ",", ".tsv": "\t"}


def counted(number: int, thing: str) -> str:
    """A number and what it counts: "1 row", "2 rows", "2 processes"."""
    plural = "" if number == 1 else "es" if thing.endswith("s") else "s"
    return f"{number:,} {thing}{plural}"


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
