"""How much memory something takes at its peak. As a program it prints the bytes that one training step holds above
weights and gradients."""

import gc
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

from tfm_zoo.packing.memory import return_memory

from . import decoder, encoder, later_decoders
from .settings import Settings

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


def main() -> None:
    which, family, kind, device, dtype, attention, layers, length = sys.argv[1:]
    settings = Settings(device, getattr(torch, dtype), attention, 1, int(layers), int(length))
    families = {"encoder": encoder, "decoder": decoder, "later_decoders": later_decoders}
    official, zoo, batch = families[family].memory_case(settings, kind)
    model = official if which == "official" else zoo
    del official, zoo
    batch = {key: states.to(device) for key, states in batch.items()}
    # A short step first: threads, caches and the gradients themselves are there before the count begins.
    ids = batch["input_ids"][:2, :16].contiguous()
    model(input_ids=ids, labels=ids).loss.backward()
    gc.collect()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    else:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        before = resident("VmRSS")
    model(**batch).loss.backward()
    print((torch.cuda.max_memory_allocated() if device == "cuda" else resident("VmHWM")) - before)


if __name__ == "__main__":
    main()
