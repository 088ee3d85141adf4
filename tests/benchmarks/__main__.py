"""`python -m tests.benchmarks [--only NAME]`: the zoo against the official classes; run it on a quiet machine."""

from collections import ChainMap
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from . import decoder, encoder, encoder_decoder, later_decoders, overhead
from .settings import Settings

FAMILIES = (encoder, decoder, later_decoders, encoder_decoder, overhead)


def main(
    only: Annotated[str, typer.Option(help="Run those whose name holds this.")] = "",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cuda" if torch.cuda.is_available() else "cpu",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "",
    attention: Annotated[str, typer.Option(help="Attention implementation of both sides.")] = "sdpa",
    rounds: Annotated[int, typer.Option(help="Batches that count.")] = 5,
    layers: Annotated[int, typer.Option(help="Layers of the model; 12 is BERT-base and GPT-2.")] = 12,
    length: Annotated[int, typer.Option(help="Tokens of the longest row that a later decoder is trained on.")] = 256,
) -> None:
    """Times the zoo against the official classes: interleaved, medians, ratio."""
    dtype = dtype or ("bfloat16" if device == "cuda" else "float32")
    settings = Settings(device, getattr(torch, dtype), attention, rounds, layers, length)
    table = Table("benchmark", "official", "zoo", "ratio", "goal", title=f"{device}, {dtype}, {attention}")
    for name, benchmark in ChainMap(*(family.benchmarks(settings) for family in reversed(FAMILIES))).items():
        if only.lower() not in name.lower():
            continue
        result = benchmark(name)
        times = f"official {result.official}, zoo {result.zoo}"
        print(f"{result.name}: {times}, ratio {result.ratio:.2f} (goal {result.goal})")
        table.add_row(result.name, result.official, result.zoo, f"{result.ratio:.2f}", result.goal)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
