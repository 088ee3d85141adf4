"""Prints how many bytes one training step holds above weights and gradients, at its peak."""

import gc
import sys
from pathlib import Path

import torch

from . import decoder, encoder, later_decoders
from .settings import Settings


def resident(field: str) -> int:
    """Bytes of this process that are (`VmRSS`) or have at most been (`VmHWM`) in memory."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def main() -> None:
    which, family, kind, device, dtype, attention, layers = sys.argv[1:]
    settings = Settings(device, getattr(torch, dtype), attention, rounds=1, layers=int(layers))
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
