"""Two callables timed in one process, in turn, on the same inputs: drift of the machine's speed hits both."""

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch


@dataclass
class Comparison:
    """Seconds per call, and native over zoo, each the median over the inputs."""

    native: float
    zoo: float
    ratio: float


def seconds(function: Callable, *args) -> float:
    start = time.perf_counter()
    function(*args)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def interleave(native: Callable, zoo: Callable, inputs: Iterable[dict]) -> Comparison:
    """Calls both on each input, in alternating order, after a short warm-up on the beginnings of the first."""
    times = []
    for turn, one in enumerate(inputs):
        if turn == 0:
            short = {name: states[:, :32].contiguous() if states.dim() == 2 else states for name, states in one.items()}
            seconds(native, short), seconds(zoo, short)
        first, second = (native, zoo) if turn % 2 else (zoo, native)
        pair = (seconds(first, one), seconds(second, one))
        times.append(pair if turn % 2 else pair[::-1])
    return Comparison(
        native=statistics.median(native for native, _ in times),
        zoo=statistics.median(zoo for _, zoo in times),
        ratio=statistics.median(native / zoo for native, zoo in times),
    )
