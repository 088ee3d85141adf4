"""The process of a contender, which loads a model and runs batches when it is told to."""

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from .contenders import CONTENDERS
from .tasks import TASKS, Given, Runner


class Worker:
    def __init__(self, name: str, threads: int):
        self.name, self.threads = name, threads
        self.start()

    def start(self) -> None:
        self.process = ProcessPoolExecutor(1, get_context("spawn"))
        self.process.submit(torch.set_num_threads, self.threads)

    def __call__(self, function: Callable, *arguments):
        """Calls a function of this module there."""
        try:
            return self.process.submit(function, *arguments).result()
        except BrokenProcessPool as error:
            self.start()  # for the next task
            raise RuntimeError("its process died") from error


loaded: Runner | None = None


def load(name: str, task: str, folder: Path) -> None:
    global loaded
    loaded = None  # before there is another
    folder.mkdir(parents=True, exist_ok=True)
    batches = [batch for found in TASKS[task].cases().values() for batch in found]
    loaded = CONTENDERS[name].load(Given(TASKS[task].make(), TASKS[task].kind, batches, folder))


def run(batch: dict) -> tuple[np.ndarray, float]:
    """The outputs, and the seconds."""
    start = time.perf_counter()
    outputs = loaded(batch)
    return outputs, time.perf_counter() - start
