"""Prints how many bytes one masked-language-modelling step holds above weights and gradients, at its peak."""

import gc
import sys
from pathlib import Path

import torch
from transformers import BertForMaskedLM

from .batches import masked, review_batches, without_padding
from .encoder import BATCH_SIZE, MAX_LENGTH, Settings, pair


def resident(field: str) -> int:
    """Bytes of this process that are (`VmRSS`) or have at most been (`VmHWM`) in memory."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def main() -> None:
    which, kind, device, dtype, attention, layers = sys.argv[1:]
    settings = Settings(device, getattr(torch, dtype), attention, rounds=1, layers=int(layers))
    native, zoo = pair(BertForMaskedLM, settings, training=True)
    model = native if which == "native" else zoo
    del native, zoo
    batches, _ = review_batches(2, BATCH_SIZE, MAX_LENGTH)
    batches = masked(batches if kind == "ragged" else without_padding(batches, MAX_LENGTH))
    batch = {key: states.to(device) for key, states in batches[1].items()}
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
