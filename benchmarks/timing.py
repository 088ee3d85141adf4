"""Callables timed in one process, in turn, on the same inputs: drift of the machine's speed hits all. And tables."""

import statistics
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch


class Comparison(NamedTuple):
    """Seconds per call, and official over zoo, each the median over the inputs."""

    official: float
    zoo: float
    ratio: float


def seconds(function: Callable, *args, clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    function(*args)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return clock() - start


def interleave(
    official: Callable, zoo: Callable, inputs: Iterable[dict], clock: Callable[[], float] = time.perf_counter
) -> Comparison:
    """Calls both on each input, in alternating order, after a short warm-up on the beginnings of the first.

    Args:
        clock: gives a time in seconds.
    """
    times = []
    for turn, one in enumerate(inputs):
        if turn == 0:
            short = {name: states[:, :32].contiguous() if states.dim() == 2 else states for name, states in one.items()}
            seconds(official, short), seconds(zoo, short)
        first, second = (official, zoo) if turn % 2 else (zoo, official)
        pair = (seconds(first, one, clock=clock), seconds(second, one, clock=clock))
        times.append(pair if turn % 2 else pair[::-1])
    ratios = (official / zoo for official, zoo in times)
    return Comparison(*map(statistics.median, (*zip(*times, strict=True), ratios)))


def in_turn(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """The seconds of each in every round, after one that does not count; every second round goes backwards."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name in [*runs] if turn % 2 else [*runs][::-1]:
            took = seconds(runs[name])
            times[name] += [took] if turn else []
    return times


def table(header: list[str], rows: Iterable[Iterable]) -> None:
    """Prints Markdown, each row as soon as it is there."""
    print(f"| {' | '.join(header)} |\n|{' --- |' * len(header)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)
    print()
