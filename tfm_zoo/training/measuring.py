"""What training costs: seconds of a step, and memory at its peak."""

import ctypes
import gc
import statistics
from pathlib import Path
from time import perf_counter

import torch

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Stopwatch:
    """Seconds of laps, without what comes before a `restart`."""

    def __init__(self, device: torch.device):
        self.device = device
        self.laps: list[float] = []
        self.restart()

    def restart(self) -> None:
        self.start = self._now()

    def lap(self) -> None:
        now = self._now()
        self.laps.append(now - self.start)
        self.start = now

    @property
    def median(self) -> float | None:
        return statistics.median(self.laps) if self.laps else None

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return perf_counter()


class PeakMemory:
    """The most bytes that were held at any time between `start` and `stop`, above what was held when this was made.

    On a GPU, of torch's tensors. On a CPU, of this process in memory, which Linux alone tells: elsewhere `bytes` is
    `None`.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self.is_known = device.type == "cuda" or (device.type == "cpu" and _reset_peak())
        self.bytes: int | None = 0 if self.is_known else None
        self.before = 0
        if self.is_known:
            gc.collect()
            self.start()
            self.before = self._peak()

    def start(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        elif self.is_known:
            _give_back()
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
    """Let the peak of this process be what is in memory now; False where the system has no such thing."""
    try:
        RESET.write_text("5")
    except OSError:
        return False
    return True


def _give_back() -> None:
    """Let the allocator give back what is free, or it would count as held."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim:
        trim(0)
