"""How much memory something takes at its peak."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tfm_zoo.inference.packing.memory import return_memory

Result = TypeVar("Result")


def resident(field: str) -> int:
    """Bytes of this process that are (`VmRSS`; `RssAnon`: without mapped files) or have at most been (`VmHWM`) in
    memory."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def with_peak(load: Callable[[], Result]) -> tuple[Result, int]:
    """What `load` gives, and the bytes that it takes at most, mapped files aside; looked at every millisecond."""
    return_memory()
    before, seen, done = resident("RssAnon"), [], threading.Event()

    def watch() -> None:
        while not done.wait(0.001):
            seen.append(resident("RssAnon"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    result = load()
    done.set()
    watcher.join()
    return result, max(seen) - before
