"""`python -m tests.benchmarks.cpu_limits`: where torch's kernels, which the zoo calls, leave a CPU idle.

Products of packed weights by the number of rows, in TFLOP/s; and attention by the number of keys, in microseconds for a
sequence of a batch.
"""

import itertools
import statistics
from collections.abc import Callable
from typing import Annotated

import torch
import typer
from torch.nn import functional as F

from tfm_zoo.packing.products import OneDNNProduct

from .structure import table
from .timing import seconds

ROWS, KEYS = (256, 384, 512, 768, 1024, 1280, 1536, 2048), (15, 16, 24, 31, 32, 47, 48, 63, 64, 100, 128, 250, 256)
SHAPES = ((384, 384), (1536, 384), (384, 1536), (768, 768), (3072, 768), (768, 3072))  # inputs, outputs
HEADS, HEAD_DIM, SEQUENCES = 12, 32, 16


def median(function: Callable[[], object], times: int = 20) -> float:
    """Seconds."""
    found = [seconds(function) for _ in range(times + 3)]
    return statistics.median(found[3:])


def rates(inputs: int, outputs: int, dtype: torch.dtype) -> list[str]:
    product, found = OneDNNProduct((torch.randn(outputs, inputs) / inputs**0.5).to(dtype), torch.randn(outputs)), []
    for rows in ROWS:
        states = torch.randn(rows, inputs).to(dtype)
        taken = median(lambda states=states: product(states))
        found.append(f"{2 * rows * inputs * outputs / taken / 1e12:.2f}")
    return found


def attention(keys: int, dtype: torch.dtype) -> float:
    heads = [torch.randn(SEQUENCES, keys, HEADS, HEAD_DIM).to(dtype).transpose(1, 2) for _ in range(3)]
    return median(lambda: F.scaled_dot_product_attention(*heads)) / SEQUENCES * 1e6


@torch.inference_mode()
def main(threads: Annotated[int, typer.Option(help="Of torch.")] = torch.get_num_threads()) -> None:
    """Prints two tables."""
    torch.set_num_threads(threads)
    types = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    made = (
        [name, f"{shape[0]:,} to {shape[1]:,}", *rates(*shape, dtype)]
        for (name, dtype), shape in itertools.product(types.items(), SHAPES)
    )
    table(["products, TFLOP/s", "shape", *(f"{rows:,} rows" for rows in ROWS)], made)
    rows = ([name, *(f"{attention(keys, dtype):.0f}" for keys in KEYS)] for name, dtype in types.items())
    table(["attention, microseconds", *(f"{keys} keys" for keys in KEYS)], rows)


if __name__ == "__main__":
    typer.run(main)
