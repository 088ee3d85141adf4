"""Writing a folder so that an error leaves nothing behind. (This file imports neither torch nor transformers.)"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..utils.locking import hold
from .errors import ConversionError
from .sources import OLD, UNFINISHED


@contextmanager
def new_folder(out: Path, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder to write to, which becomes `out`, or replaces it, at the end; an error leaves nothing behind.

    It lies in a hidden folder beside `out`, which one process holds at a time. If that process is killed, the next one
    clears the hidden folder, and puts an `out` that was about to be replaced back into its place.

    Raises:
        ConversionError: if `out` is a file, or holds files and `overwrite` is false.
        FileExistsError: if another process is writing `out`.
    """
    out = out.resolve()
    # Beside the first parent that exists: on the same file system, a folder is moved by renaming it.
    beside = next((parent for parent in out.parents if parent.exists()), out)
    workplace = beside / f".{'%2F'.join(out.relative_to(beside).parts)}{UNFINISHED}"
    new, old = workplace / "new", workplace / OLD
    workplace.mkdir(exist_ok=True)
    lock = hold(out, workplace / "lock")
    try:
        put_back(old, out)
        for left in filter(Path.is_dir, workplace.iterdir()):
            shutil.rmtree(left, ignore_errors=True)
        check_replaceable(out, overwrite)
        new.mkdir()
        yield new
        check_replaceable(out, overwrite)  # again: this may have taken hours
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.exists():
            out.rename(old)
        new.rename(out)
    finally:
        put_back(old, out)
        shutil.rmtree(workplace, ignore_errors=True)
        lock.release()


def put_back(old: Path, out: Path) -> None:
    """Gives a folder that was about to be replaced its name back, or deletes it if `out` is there."""
    if old.exists() and not out.exists():
        old.rename(out)
    shutil.rmtree(old, ignore_errors=True)  # (which is no longer there if it was renamed)


def check_replaceable(out: Path, overwrite: bool) -> None:
    """Refuses a file, and a folder that holds files unless they may be replaced."""
    if out.exists() and not out.is_dir():
        raise ConversionError(f"{out} exists and is not a folder.")
    if out.exists() and any(out.iterdir()) and not overwrite:
        raise ConversionError(f"{out} exists and is not empty: give --overwrite to replace it.")
