"""`python -m tests.benchmarks.onnx [--threads N]`: zoo models in torch, and as ONNX files in ONNX Runtime, on a CPU."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import onnxruntime
import torch
import typer
from rich.console import Console
from rich.table import Table
from transformers import BertModel

from tfm_zoo.onnx import export_onnx

from . import decoder, encoder
from .settings import Settings
from .timing import interleave


def session(model: torch.nn.Module) -> onnxruntime.InferenceSession:
    """The model in ONNX Runtime, with as many threads as torch has."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        export_onnx(model, Path(folder))
        return onnxruntime.InferenceSession(Path(folder) / "model.onnx", options, providers=["CPUExecutionProvider"])


def encode(model: torch.nn.Module) -> Callable[[dict], None]:
    run = session(model).run

    def encode(batch: dict) -> None:
        ids, mask = batch["input_ids"].numpy(), batch["attention_mask"].numpy()
        run(None, {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)})

    return encode


def decode(model: torch.nn.Module) -> Callable[[dict], None]:
    """Greedy decoding; the cache is handed from step to step without a copy."""
    ran, heads, width = session(model), model.config.num_key_value_heads, model.config.head_dim
    names = [output.name for output in ran.get_outputs()]

    def decode(batch: dict) -> None:
        ids, value = batch["input_ids"].numpy(), onnxruntime.OrtValue.ortvalue_from_numpy
        mask, positions = np.ones_like(ids), np.arange(ids.shape[1])[None]
        empty = value(np.zeros((len(ids), heads, 0, width), np.float32))
        cache = {name.replace("present", "past_key_values"): empty for name in names[1:]}
        for _ in range(decoder.NEW_TOKENS):
            tokens = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
            results = ran.run_with_ort_values(names, {name: value(ids) for name, ids in tokens.items()} | cache)
            ids = results[0].numpy()[:, -1:].argmax(axis=-1)
            mask, positions = np.pad(mask, ((0, 0), (0, 1)), constant_values=1), positions[:, -1:] + 1
            cache = dict(zip(cache, results[1:], strict=True))

    return decode


def main(
    rounds: Annotated[int, typer.Option(help="Batches that count.")] = 5,
    layers: Annotated[int, typer.Option(help="Layers of the decoder; 12 is GPT-2.")] = 12,
    threads: Annotated[int | None, typer.Option(help="Of both sides; by default torch's own number.")] = None,
) -> None:
    """Times both: interleaved, medians, ratio of torch to ONNX Runtime."""
    torch.set_num_threads(threads or torch.get_num_threads())
    settings = Settings("cpu", torch.float32, "sdpa", rounds, layers)
    minilm = encoder.pair(BertModel, settings, training=False, **encoder.MINILM)[1]
    gpt2 = decoder.pair(settings)[1]
    reviews = encoder.reviews(rounds, 256)
    short = [{name: ids[:1, :32] for name, ids in batch.items()} for batch in reviews]
    cases = {
        "MiniLM, 16 reviews of at most 256 tokens": (encoder.forward(minilm), encode(minilm), reviews),
        "the same, no padding": (encoder.forward(minilm), encode(minilm), encoder.without_padding(reviews, 256)),
        "MiniLM, 1 x 32 tokens": (encoder.forward(minilm), encode(minilm), 4 * short),
        "GPT-2, greedy decoding, 24 tokens": (decoder.decode(gpt2), decode(gpt2), decoder.batches(settings, 1, 16)),
    }
    table = Table("benchmark", "torch", "ONNX Runtime", "ratio", title=f"{torch.get_num_threads()} threads, float32")
    for name, (torch_run, onnx_run, batches) in cases.items():
        result = interleave(torch_run, onnx_run, batches)
        figures = f"{1000 * result.official:.1f} ms", f"{1000 * result.zoo:.1f} ms", f"{result.ratio:.2f}"
        print(name, *figures, sep=" | ", flush=True)
        table.add_row(name, *figures)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
