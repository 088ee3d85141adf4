"""How much memory something takes at its peak. As a program it prints the bytes that one training step holds above
weights and gradients: `python -m benchmarks.memory SIDE CASE SETTINGS`."""

import gc
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

import torch

from tfm_zoo.inference.packing.memory import return_memory

from .pairs import Settings

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


def of_step(side: int, case: str, settings: Settings) -> int:
    """Bytes above weights and gradients at the peak of a training step, in a process of its own.

    Args:
        side: 0 is the official class, 1 the zoo's.
        case: a name in `speed.CASES`.
    """
    told = json.dumps(asdict(settings) | {"dtype": str(settings.dtype).removeprefix("torch.")})
    command = [sys.executable, "-m", __spec__.name, str(side), case, told]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def main() -> None:
    from .speed import CASES

    side, case, told = sys.argv[1:]
    fields = json.loads(told)
    settings = Settings(**fields | {"dtype": getattr(torch, fields["dtype"]), "rounds": 1})
    models, (batch, *_) = CASES[case].pair(settings), CASES[case].inputs(settings)
    model = models[int(side)]
    del models
    # A short step first: threads, caches and the gradients themselves are there before the count begins.
    ids = batch["input_ids"][:2, :16].contiguous()
    model(input_ids=ids, labels=ids).loss.backward()
    gc.collect()
    if settings.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    else:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        before = resident("VmRSS")
    model(**batch).loss.backward()
    print((torch.cuda.max_memory_allocated() if settings.device == "cuda" else resident("VmHWM")) - before)


if __name__ == "__main__":
    main()
