"""`python -m tests.benchmarks.quantized_loading [--layers 4]`: the memory that a model of int8 and int4 takes while it
is loaded, from a folder of bfloat16, whose weights are rounded, and from one that was quantised; TinyLlama's shape.

What counts is anonymous memory at its peak, and the embedding, which stays in its file.
"""

import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from transformers.utils import logging

from tfm_zoo import TfmGPTForCausalLM, TfmQuantizationConfig

from .large_conversion import SHARD, run_convert, write_checkpoint
from .peak_memory import with_peak


def main(
    layers: Annotated[int, typer.Option(help="TinyLlama has 22.")] = 22,
    folder: Annotated[Path | None, typer.Option(help="Where to make temporary folders.")] = None,
) -> None:
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        source, zoo = Path(temporary, "official"), Path(temporary, "zoo")
        source.mkdir()
        write_checkpoint(source, "llama", layers, SHARD)
        run_convert(source, zoo)
        for dtype in ("int8", "int4"):
            quantised = Path(temporary, dtype)
            load = TfmGPTForCausalLM.from_pretrained
            model, rounding = with_peak(partial(load, zoo, quantization_config=TfmQuantizationConfig(dtype)))
            model.save_pretrained(quantised)
            embedding = model.get_input_embeddings().weight.nbytes
            del model
            _, loading = with_peak(partial(load, quantised))
            size = sum(file.stat().st_size for file in quantised.glob("*.safetensors"))
            shares = [(peak + embedding) / size for peak in (rounding, loading)]
            print(f"{dtype}: {size / 10**9:.2f} GB; {shares[0]:.2f} times that rounding, {shares[1]:.2f} loading")


if __name__ == "__main__":
    typer.run(main)
