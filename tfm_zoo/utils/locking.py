"""Folders that one process at a time writes to, and files that are written whole or stay as they were."""

import json
import os
import platform
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_IMODE
from typing import Any

from filelock import FileLock, Timeout


def hold(folder: Path, file: Path) -> FileLock:
    """A lock on a folder, in a file beside or in it, which lasts as long as this process or what is returned.

    Raises:
        FileExistsError: if another process holds it; the message names that process.
    """
    lock = FileLock(file, blocking=False, is_singleton=True)  # so that a process never waits for itself
    try:
        lock.acquire()
    except Timeout as error:
        raise FileExistsError(f"{folder}: {file.read_text()} writes there now; wait until it has ended.") from error
    file.write_text(f"process {os.getpid()} of {platform.node()}")
    return lock


@contextmanager
def atomic_files(folder: Path, last: Collection[str] = ()) -> Iterator[Path]:
    """A folder to write to, whose files replace those of `folder` at the end. An error leaves what was there, and
    nothing that others write there meanwhile is deleted.

    Files of the names in `last`, which describe the others, are deleted before the others are replaced, and written
    last. So a process that is killed while it replaces files leaves old ones beside new ones, but no such file.
    A file keeps the permissions of the one that it replaces. A link is replaced, and not what it leads to: files of the
    Hub's cache are links to what others read.
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=".", suffix=".unfinished", dir=folder) as place:
            yield Path(place)
            for name in last:
                (folder / name).unlink(missing_ok=True)
            for file in sorted(Path(place).rglob("*"), key=lambda path: (path.name in last, path)):
                if file.is_file():
                    replace(file, folder / file.relative_to(place))
    except BaseException:
        if is_new:
            with suppress(OSError):  # others have written there
                folder.rmdir()
        raise


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A file to write to, which replaces `path` at the end: see [`atomic_files`]. What is not a file, such as
    `/dev/stdout`, is written to as it is."""
    if path.exists() and not path.is_file():
        yield path
        return
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: there is no folder {str(path.parent)!r}.")
    try:
        with tempfile.TemporaryDirectory(prefix=".", suffix=".unfinished", dir=path.parent) as place:
            unfinished = Path(place, path.name)
            yield unfinished
            with unfinished.open("rb") as file:
                os.fsync(file.fileno())
            replace(unfinished, path)
    except OSError as error:  # such as a full disk
        raise OSError(f"{path} is not written, and is as it was: {error}") from error


def write_json(path: Path, value: Any, indent: int = 2, ensure_ascii: bool = True) -> None:
    """Writes a value as JSON, in a file that replaces `path` when it is complete."""
    with atomic_file(path) as file:
        file.write_text(json.dumps(value, indent=indent, ensure_ascii=ensure_ascii) + "\n", encoding="utf-8")


def replace(new: Path, old: Path) -> None:
    """Moves a file to the place of another, whose owner and permissions it takes."""
    if old.is_file():
        before = old.stat()
        with suppress(OSError):  # only root may give a file to somebody else
            shutil.chown(new, before.st_uid, before.st_gid)
        new.chmod(S_IMODE(before.st_mode))
    old.parent.mkdir(parents=True, exist_ok=True)
    os.replace(new, old)
