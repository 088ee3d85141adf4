"""What training costs: the seconds of a step, and memory at its peak."""

import gc
import statistics
from pathlib import Path
from time import perf_counter

import torch

from tfm_zoo.inference.packing.memory import return_memory

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Stopwatch:
    """Seconds of laps. A lap begins where the one before it ended, or at a `restart`."""

    def __init__(self, device: torch.device):
        self.device = device
        self.laps: list[float] = []
        self.restart()

    def restart(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.start = perf_counter()

    def lap(self) -> None:
        before = self.start
        self.restart()
        self.laps.append(self.start - before)

    @property
    def median(self) -> float | None:
        return statistics.median(self.laps) if self.laps else None


class PeakMemory:
    """The most bytes in use at any time between `start` and `stop`, beyond those in use when this object was made.

    On a GPU these are the bytes of torch's tensors. On a CPU they are the memory of the process, which only Linux
    reports: `bytes` is `None` on other systems.
    """

    def __init__(self, device: torch.device):
        self.device, self.before = device, 0
        self.is_known = device.type == "cuda" or (device.type == "cpu" and _reset_peak())
        self.bytes: int | None = 0 if self.is_known else None
        if self.is_known:
            gc.collect()
            self.start()
            self.before = self._peak()

    def start(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        elif self.is_known:
            return_memory()  # free memory that the allocator keeps would count as in use
            _reset_peak()

    def stop(self) -> None:
        if self.is_known:
            self.bytes = max(self.bytes, self._peak() - self.before)

    def _peak(self) -> int:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024


def _reset_peak() -> bool:
    """Set the peak of this process to its memory now. Returns False if the system keeps no peak."""
    try:
        return bool(RESET.write_text("5"))
    except OSError:
        return False
