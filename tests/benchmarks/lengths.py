"""`python -m tests.benchmarks.lengths [OUT.png]`: time and memory of a training step against the length of its input,
for softmax, a sliding window and linear attention; with the exponents by which they grow. About five minutes."""

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from .peak_memory import resident
from .timing import seconds

LENGTHS = [2**power for power in range(9, 15)]
FITTED = 4  # of them, the longest, where what grows with the square of the length outweighs what does not
KINDS = {
    "softmax, weights written out": {"implementation": "eager"},
    "softmax": {"implementation": "sdpa"},
    "window of 128": {"implementation": "sdpa", "sliding_window": 128},
    "linear": {"implementation": "sdpa", "attention_type": "linear"},
}
MOST = {"softmax, weights written out": 8192}  # beyond, its weights alone are 4 GB


def measure(kind: str, length: int, causal: bool) -> tuple[float, int]:
    """Seconds of a forward and a backward pass through one layer, a median of three, and bytes at its peak."""
    import tfm_zoo

    fields = dict(KINDS[kind])
    implementation = fields.pop("implementation")
    sizes = {"hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 128, "num_hidden_layers": 1}
    sizes |= {"vocab_size": 64, "position_embedding_type": "none", "hidden_dropout": 0.0, "attention_dropout": 0.0}
    family = (tfm_zoo.TfmGPTModel, tfm_zoo.TfmGPTConfig) if causal else (tfm_zoo.TfmBertModel, tfm_zoo.TfmBertConfig)
    torch.manual_seed(0)
    model = family[0](family[1](**sizes, **fields))
    model.set_attn_implementation(implementation)
    ids = torch.randint(3, 64, (1, length))

    def step() -> None:
        model(ids).last_hidden_state.square().mean().backward()

    model(ids[:, :64]).last_hidden_state.square().mean().backward()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = resident("VmRSS")
    times = [seconds(step) for _ in range(3)]
    return statistics.median(times), resident("VmHWM") - before


def measured(kind: str, length: int, causal: bool) -> tuple[float, int]:
    """In a process of its own, which has not held anything longer."""
    command = [sys.executable, "-m", __spec__.name, "--measure", json.dumps([kind, length, causal])]
    return tuple(
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    )


def exponent(lengths: list[int], values: list[float]) -> float:
    """Of the power of the length that fits the longest best."""
    return float(np.polyfit(np.log(lengths[-FITTED:]), np.log(values[-FITTED:]), 1)[0])


def main(
    out: Annotated[Path, typer.Argument(help="The picture.")] = Path("attention_lengths.png"),
    both_ways: Annotated[bool, typer.Option(help="An encoder, in the place of a decoder.")] = False,
    measure_one: Annotated[str | None, typer.Option("--measure", hidden=True)] = None,
) -> None:
    """Measures, prints the table, draws the picture."""
    if measure_one:
        print(json.dumps(measure(*json.loads(measure_one))))
        return
    figure = Figure(figsize=(9, 4), layout="constrained")
    panels = figure.subplots(1, 2)
    table = Table("attention", "time at the longest", "grows as length to the", "memory", "grows as length to the")
    for kind in KINDS:
        lengths = [length for length in LENGTHS if length <= MOST.get(kind, LENGTHS[-1])]
        times, peaks = zip(*(measured(kind, length, not both_ways) for length in lengths), strict=True)
        powers = exponent(lengths, times), exponent(lengths, peaks)
        row = f"{times[-1]:.3f} s", f"{powers[0]:.2f}", f"{peaks[-1] / 2**20:.0f} MiB", f"{powers[1]:.2f}"
        table.add_row(f"{kind} ({lengths[-1]:,})", *row)
        print(kind, *row, sep=" | ", flush=True)
        for panel, values, power in zip(panels, (times, np.array(peaks) / 2**20), powers, strict=True):
            panel.loglog(lengths, values, marker="o", label=f"{kind} (to the {power:.2f})", base=2)
    for panel, label in zip(panels, ("seconds a training step", "MiB at its peak"), strict=True):
        panel.set_xlabel("length of the input, tokens")
        panel.set_ylabel(label)
        panel.set_yscale("log")
        panel.set_xticks(LENGTHS, [f"{length:,}" for length in LENGTHS], minor=False)
        panel.grid(alpha=0.25)
        panel.legend(frameon=False, fontsize=8)
    figure.savefig(out, dpi=150)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
