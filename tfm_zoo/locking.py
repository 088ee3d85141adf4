"""Folders that one process at a time writes to."""

import os
import platform
from pathlib import Path

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
