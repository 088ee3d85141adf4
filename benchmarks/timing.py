"""Callables timed in one process, in turn, on the same inputs: drift of the machine's speed hits all. And tables."""

import time
from collections.abc import Callable, Iterable
from itertools import chain
from statistics import median
from typing import TextIO

import torch


def seconds(function: Callable, *args, clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    function(*args)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return clock() - start


def in_turn(
    runs: dict[str, Callable], inputs: Iterable, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """The seconds of each on every input but the first, which does not count; every second turn goes backwards."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn, one in enumerate(inputs):
        for name in [*runs] if turn % 2 else [*runs][::-1]:
            took = seconds(runs[name], one, clock=clock)
            times[name] += [took] if turn else []
    return times


def ratio(one: list[float], other: list[float]) -> float:
    """The median over the inputs."""
    return median(a / b for a, b in zip(one, other, strict=True))


def compare(
    official: Callable, zoo: Callable, inputs: Iterable, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, float, float]:
    """Official seconds, the zoo's, and the ones over the others: medians over the inputs, of which the first does not
    count."""
    ours, theirs = in_turn({"zoo": zoo, "official": official}, inputs, clock).values()
    return median(theirs), median(ours), ratio(theirs, ours)


def line(cells: Iterable) -> str:
    """A row of Markdown."""
    return f"| {' | '.join(map(str, cells))} |"


def table(header: list[str], rows: Iterable[Iterable], file: TextIO | None = None) -> None:
    """Prints Markdown, each row as soon as it is there."""
    for row in chain([header, ["---"] * len(header)], rows):
        print(line(row), file=file, flush=True)
    print(file=file)
