"""What every benchmark is told, and tells; a training step; and memory, measured in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass
class Settings:
    device: str
    dtype: torch.dtype
    attention: str
    rounds: int
    layers: int
    length: int = 256  # tokens of the longest row of a later decoder's training step

    @property
    def official_attention(self) -> str:
        """That of the official class, which has no `"varlen"`."""
        return "sdpa" if self.attention == "varlen" else self.attention


@dataclass
class Result:
    """One line of the report. `ratio` is official over zoo for time, zoo over official for memory."""

    name: str
    official: str
    zoo: str
    ratio: float
    goal: str


def training_step(model: torch.nn.Module, autocast: bool = False) -> Callable[[dict], None]:
    """A step in the model's own type, or with products in bfloat16."""
    # No optimizer state: official BERT-base, at 16 x 512 tokens, and its twin are to fit into 24 GB together.
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)

    def run(batch: dict) -> None:
        with torch.autocast(model.device.type, torch.bfloat16, enabled=autocast):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


def peak_memory(which: str, family: str, kind: str, settings: Settings) -> int:
    """Bytes above weights and gradients at the peak of a training step, in a process of its own."""
    arguments = [which, family, kind, settings.device, str(settings.dtype).split(".")[-1], settings.attention]
    sizes = [str(settings.layers), str(settings.length)]
    command = [sys.executable, "-m", "tests.benchmarks.peak_memory", *arguments, *sizes]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def remembered(name: str, family: str, kind: str, settings: Settings, goal: str) -> Result:
    official, zoo = (peak_memory(which, family, kind, settings) for which in ("official", "zoo"))
    return Result(name, f"{official / 2**30:.2f} GiB", f"{zoo / 2**30:.2f} GiB", zoo / official, goal)
