"""`python -m tests.benchmarks.packing [--threads N] [--compiled]`: packed weights beside CTranslate2, on a CPU.

Times of decoders are milliseconds per token: 64 tokens after 32, so that the prompt counts.
"""

import copy
import statistics
from collections.abc import Callable
from functools import cache
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table
from transformers import BertModel, LlamaConfig, LlamaForCausalLM, PreTrainedModel

import tfm_zoo

from . import decoder, encoder, encoder_decoder, engines
from .settings import Settings
from .timing import seconds

DTYPES = ("float32", "bfloat16", "int8", "int4")


@cache
def llama(layers: int) -> tuple[PreTrainedModel, PreTrainedModel]:
    """A LLaMA of SmolLM-135M's shape with random weights, and its zoo twin."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3}
    config = LlamaConfig(vocab_size=49152, num_hidden_layers=layers, tie_word_embeddings=True, **sizes)
    official = LlamaForCausalLM(config).eval()
    return official, tfm_zoo.from_official(official).eval()


def contenders(models: tuple, run: Callable, run_engine: Callable, compiled: bool) -> dict[str, Callable[[dict], None]]:
    """What is timed: a name -> a function that takes a batch."""
    official, zoo = models
    found = {"official": run(official), "zoo": run(zoo)}
    found |= {dtype: run(tfm_zoo.pack_weights(copy.deepcopy(zoo), dtype)) for dtype in DTYPES}
    if compiled:
        found |= {
            f"{dtype}, compiled": run(tfm_zoo.pack_weights(copy.deepcopy(zoo), dtype, compile=True)) for dtype in DTYPES
        }
    return found | {f"CTranslate2 {dtype}": run_engine(official, dtype) for dtype in engines.TYPES}


def interleaved(functions: dict[str, Callable], batches: list[dict]) -> dict[str, list[float]]:
    """Seconds of each function on each batch, after a first call on the first batch."""
    for function in functions.values():
        function(batches[0])
    times = {name: [] for name in functions}
    for batch in batches:
        for name, function in functions.items():
            times[name].append(seconds(function, batch))
    return times


def main(
    only: Annotated[str, typer.Option(help="Run those whose name holds this.")] = "",
    rounds: Annotated[int, typer.Option(help="Batches that count.")] = 5,
    layers: Annotated[int, typer.Option(help="Layers of BERT and GPT-2; 12 is their base size.")] = 12,
    threads: Annotated[int | None, typer.Option(help="Of both sides; by default torch's own number.")] = None,
    compiled: Annotated[bool, typer.Option(help="Also with compiled decoding steps.")] = False,
) -> None:
    """Times all in turn: minimum and median of each, and the official minimum over its own."""
    torch.set_num_threads(threads or torch.get_num_threads())
    settings = Settings("cpu", torch.float32, "sdpa", rounds, layers)
    gpt2, smollm = cache(lambda: decoder.pair(settings)), lambda: llama(30 * layers // 12)
    bert = cache(lambda: encoder.pair(BertModel, settings, training=False))
    marian = cache(lambda: encoder_decoder.pair("Marian, opus-mt", settings, training=False))
    prompts = {
        rows: [{"input_ids": batch["input_ids"] % 49152} for batch in decoder.batches(settings, rows, decoder.PROMPT)]
        for rows in (1, 8)
    }
    decoding = (decoder.decode, engines.decode, compiled)
    cases = {
        "GPT-2, 1 sequence": (gpt2, *decoding, prompts[1]),
        "GPT-2, 8 sequences": (gpt2, *decoding, prompts[8]),
        "LLaMA of SmolLM-135M's shape, 1 sequence": (smollm, *decoding, prompts[1]),
        "LLaMA of SmolLM-135M's shape, 8 sequences": (smollm, *decoding, prompts[8]),
        "BERT, 16 reviews": (bert, encoder.forward, engines.encode, False, None),
        "Marian of opus-mt's shape, 32 sentences, beam 4": (
            marian,
            encoder_decoder.translate,
            engines.translate,
            False,
            None,
        ),
    }
    for name, (models, run, run_engine, is_compiled, batches) in cases.items():
        if only.lower() not in name.lower():
            continue
        if batches is None:
            batches = encoder.reviews(rounds) if "BERT" in name else encoder_decoder.batches("test", 32, rounds)
        times = interleaved(contenders(models(), run, run_engine, is_compiled), batches)
        tokens = decoder.NEW_TOKENS if "sequence" in name else 1
        table = Table(name, "minimum, ms", "median, ms", "ratio", title=f"{torch.get_num_threads()} threads")
        for contender, values in times.items():
            figures = (f"{1000 * figure(values) / tokens:.1f}" for figure in (min, statistics.median))
            table.add_row(contender, *figures, f"{min(times['official']) / min(values):.2f}")
        Console().print(table)


if __name__ == "__main__":
    typer.run(main)
