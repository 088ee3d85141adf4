"""Large files of lines as data sets of many shards. Shards are ranges of bytes, so that many readers share a file."""

import json
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from datasets import Features, IterableDataset, Value

#: the fewest bytes in a shard, and roughly the most shards (a reader that continues in the middle of a shard reads it
#: again from its beginning)
SHARD, SHARDS = 4 << 20, 4096
#: the number of bytes in which the end of a document is searched; a longer document is cut at the end of a line
LONGEST = 2 << 20


def in_ranges(files: Sequence[Path], at_empty_lines: bool = False) -> IterableDataset:
    """The lines of text files, or the rows of JSON lines: in order, as the readers of `datasets` give them.

    A shard ends with a line or, if empty lines end documents (`at_empty_lines`), with an empty line.
    """
    sizes = {str(path): path.stat().st_size for path in files}
    size = max(SHARD, sum(sizes.values()) // SHARDS)
    ranges = [(path, begin, begin + size) for path in sizes for begin in range(0, sizes[path], size)]
    names, features = None, Features({"text": Value("string")})
    if files[0].suffix.lower() == ".jsonl":
        names, features = _columns(files), None
    options = {"ranges": ranges, "names": names, "at_empty_lines": at_empty_lines}
    rows = IterableDataset.from_generator(_read, features, options)
    rows.info.builder_name = "json" if names else "text"
    return rows


def _read(ranges: list[tuple[str, int, int]], names: tuple[str, ...] | None, at_empty_lines: bool) -> Iterator[dict]:
    for path, begin, end in ranges:
        with open(path, "rb") as file:
            place, end = (_boundary(file, near, at_empty_lines) for near in (begin, end))
            file.seek(place)
            for line in file:
                if place >= end:
                    break
                place += len(line)
                if not names:
                    yield {"text": _text(line if place > len(line) else line.removeprefix(BOM_UTF8), path)}
                elif line.strip():
                    row = _row(line, path)
                    yield {name: row.get(name) for name in names}


def _columns(files: Sequence[Path]) -> tuple[str, ...]:
    """The names in the first row of JSON lines. Files may be empty, or begin with empty lines."""
    for path in files:
        with open(path, "rb") as file:
            for line in filter(bytes.strip, file):
                return tuple(_row(line, str(path)))
    raise ValueError(f"there is no row in {', '.join(map(str, files))}")


def _boundary(file: BinaryIO, near: int, at_empty_lines: bool) -> int:
    """Where the shard of a range begins: after the line that holds byte `near`, or after the next empty line."""
    if near == 0:
        return 0
    file.seek(near - 1)
    file.readline()
    at_line = file.tell()
    while at_empty_lines and file.tell() < near + LONGEST:
        line = file.readline()
        if not line.strip():  # or the end of the file
            return file.tell()
    return at_line


def _text(line: bytes, path: str) -> str:
    try:
        return line.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path!r} has a line that is not UTF-8: {line[:80]!r}") from error


def _row(line: bytes, path: str) -> dict[str, Any]:
    try:
        return dict(json.loads(line))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path!r} has a line that is not a JSON object: {line[:80]!r}") from error
