"""`python -m tests.benchmarks.token_time`: where the time of a token goes, when a CPU decodes one sequence.

`generate` and the model's forward calls alone are timed, in turn; the difference is what `generate` adds. What the
operators of these calls take is torch's profile of them, which makes small operators a microsecond or two slower; the
rest of a call is Python. What sampling adds is the time of `generate` with `top_p`, beyond that without.

On one thread it is the process's own time that counts, which other programs of the machine change less.
"""

import copy
import statistics
from collections.abc import Callable
from functools import partial
from time import perf_counter, process_time
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile
from transformers import PreTrainedModel

import tfm_zoo

from . import decoder
from .leaderboard.report import machine
from .packing import llama
from .settings import Settings
from .timing import seconds

TOKENS = 32  # after the prompt and its first token
#: parts of operators' names, by what they do; products stand in attention only where it is eager
KINDS = {
    "products": ("addmm", "aten::mm", "linear_pointwise", "linear_dynamic", "int4pack_mm"),
    "attention": ("dot_product",),
}
COLUMNS = (*KINDS, "other operators", "Python", "generate", "whole", "sampling, more")


def write(model: PreTrainedModel, ids: torch.Tensor, tokens: int, **options) -> None:
    """Decodes so many tokens after the first."""
    end = model.config.vocab_size  # no token: random weights never end
    lengths = {"min_new_tokens": 1 + tokens, "max_new_tokens": 1 + tokens, "pad_token_id": 0, "eos_token_id": end}
    model.generate(ids, attention_mask=torch.ones_like(ids), **lengths, **options)


def read(model: PreTrainedModel, ids: torch.Tensor) -> Callable[[], None]:
    """A function that calls the model for `TOKENS` tokens, behind a cache of the prompt."""
    mask = torch.ones(1, ids.shape[1] + TOKENS, dtype=torch.long)
    cache = model(ids, use_cache=True).past_key_values

    def run() -> None:
        for length in range(ids.shape[1] + 1, mask.shape[1] + 1):
            model(ids[:, -1:], attention_mask=mask[:, :length], past_key_values=cache, use_cache=True)

    return run


@torch.no_grad()
def parts(model: PreTrainedModel, ids: torch.Tensor) -> dict[str, float]:
    """Milliseconds a token."""
    clock = process_time if torch.get_num_threads() == 1 else perf_counter
    sampled = {"do_sample": True, "top_p": 0.95, "top_k": 0}
    greedy, first, drawn, first_drawn = (
        seconds(partial(write, model, ids, tokens, **options), clock=clock)
        for options in ({"do_sample": False}, sampled)
        for tokens in (TOKENS, 0)
    )
    calls = seconds(read(model, ids), clock=clock)
    run = read(model, ids)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        start = perf_counter()
        own = seconds(run, clock=clock) / (perf_counter() - start)
    found = dict.fromkeys((*KINDS, "other operators"), 0.0)
    for operator in profiled.key_averages():
        kinds = (kind for kind, names in KINDS.items() if any(name in operator.key for name in names))
        found[next(kinds, "other operators")] += own * operator.self_cpu_time_total / 1e6
    found["Python"] = calls - sum(found.values())
    found["generate"] = greedy - first - calls
    found["whole"] = greedy - first
    found["sampling, more"] = drawn - first_drawn - found["whole"]
    return {name: 1000 * value / TOKENS for name, value in found.items()}


def main(
    only: Annotated[str, typer.Option(help="Models whose name holds this.")] = "",
    rounds: Annotated[int, typer.Option(help="Of which the medians are shown.")] = 5,
    layers: Annotated[int, typer.Option(help="Of GPT-2; the LLaMA has two and a half times as many.")] = 12,
    threads: Annotated[int | None, typer.Option(help="By default torch's own number.")] = None,
) -> None:
    """Prints a table for each model: the official class, the zoo's, and packed ones, in milliseconds a token."""
    torch.set_num_threads(threads or torch.get_num_threads())
    settings = Settings("cpu", torch.float32, "sdpa", rounds, layers)
    pairs = {
        "GPT-2": lambda: decoder.pair(settings),
        "LLaMA of SmolLM-135M's shape": lambda: llama(30 * layers // 12),
    }
    print(f"{machine()}, {torch.get_num_threads()} threads; milliseconds a token, one sequence, behind 32 tokens")
    for name, make in pairs.items():
        if only.lower() not in name.lower():
            continue
        official, zoo = make()
        models = {"official": official, "zoo": zoo}
        models |= {dtype: tfm_zoo.pack_weights(copy.deepcopy(zoo), dtype) for dtype in ("float32", "int8")}
        ids = decoder.batches(settings, 1, decoder.PROMPT, high=49152)[0]["input_ids"]
        for model in models.values():
            parts(model, ids)
        times = [{contender: parts(model, ids) for contender, model in models.items()} for _ in range(rounds)]
        table = Table(name, *COLUMNS)
        for contender in models:
            medians = (statistics.median(each[contender][column] for each in times) for column in COLUMNS)
            table.add_row(contender, *(f"{median:.1f}" for median in medians))
        Console(width=120).print(table)


if __name__ == "__main__":
    typer.run(main)
