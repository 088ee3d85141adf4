"""What training costs: the seconds of a step, memory at its peak, and a loop that measures both."""

import gc
import logging
import math
import statistics
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from tfm_zoo.packing.memory import return_memory
from tfm_zoo.training.comparison.model import Variant
from tfm_zoo.training.comparison.report import Result
from tfm_zoo.training.loop import Loop
from tfm_zoo.training.runs import Run
from tfm_zoo.training.task import Task

logger = logging.getLogger(__name__)

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
EXPLODED = 2.0  # times the loss of a uniform guess: training ends there


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


class VariantLoop(Loop):
    """A loop that measures what training costs, saves no model unless asked to, and ends if the loss explodes."""

    def __init__(self, run: Run, task: Task, memory: PeakMemory):
        super().__init__(run, task)
        self.memory, self.stopwatch = memory, Stopwatch(run.accelerator.device)
        self.diverged_at: int | None = None  # the step at which the loss exploded
        self.limit = EXPLODED * math.log(task.model.config.vocab_size)
        self.optimizer.optimizer.register_step_post_hook(lambda *_: self.stopwatch.lap())

    def train(self) -> None:
        """Train to the end, or until the loss explodes."""
        self.start_measuring()
        try:
            super().train()
        except FloatingPointError as error:
            self.diverged_at = self.state.step
            logger.warning(f"It diverged: {error}")
        self.memory.stop()

    def result(self, variant: Variant, settings: dict[str, Any]) -> Result:
        """How training went; `settings` are all that the result depends on."""
        history, seconds = self.state.log_history, self.stopwatch.median
        losses = [entry["eval_loss"] for entry in history if "eval_loss" in entry]
        tokens = self.batches.global_batch_size * self.task.splits["train"].block_size
        return Result(
            variant.name,
            variant.changes,
            parameters=self.task.model.num_parameters(),
            steps=self.state.step,
            tokens_per_step=tokens,
            final_loss=losses[-1] if self.diverged_at is None else None,
            best_loss=min(losses, default=None),
            diverged_at=self.diverged_at,
            tokens_per_second=tokens / seconds if seconds else None,
            peak_memory=self.memory.bytes,
            settings=settings,
            log_history=history,
        )

    def start_measuring(self) -> None:
        self.memory.start()
        self.stopwatch.restart()

    def evaluate(self) -> None:
        self.memory.stop()
        super().evaluate()
        self.start_measuring()

    def keep(self) -> None:
        if self.args.save_models:
            super().keep()

    def log(self, values: dict[str, float]) -> None:
        loss = values.get("loss", values.get("eval_loss"))
        if math.isfinite(loss):
            super().log(values)
        if not loss <= self.limit:
            raise FloatingPointError(f"the loss is {loss} at step {self.state.step}")
