"""The encoder family against native BERT: what is timed, and the figure that is aimed at."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel

import tfm_zoo

from .batches import masked, review_batches, without_padding
from .timing import interleave

BATCH_SIZE, MAX_LENGTH = 16, 512
MINILM = {"num_hidden_layers": 6, "hidden_size": 384, "intermediate_size": 1536}  # all-MiniLM-L6-v2


@dataclass
class Settings:
    device: str
    dtype: torch.dtype
    attention: str
    rounds: int
    layers: int


@dataclass
class Result:
    """One line of the report. `ratio` is native over zoo for time, zoo over native for memory."""

    name: str
    native: str
    zoo: str
    ratio: float
    goal: str


def pair(
    native_class: type, settings: Settings, training: bool, **sizes: int
) -> tuple[torch.nn.Module, torch.nn.Module]:
    """A BERT of random weights, BERT-base unless `sizes` say otherwise, and its zoo twin."""
    torch.manual_seed(0)
    config = BertConfig(**{"num_hidden_layers": settings.layers} | sizes)
    config._attn_implementation = settings.attention
    native = native_class(config).to(settings.dtype)
    zoo = tfm_zoo.from_official(native, attn_implementation=settings.attention)
    return tuple(model.to(settings.device).train(training) for model in (native, zoo))


def forward(model: torch.nn.Module) -> Callable[[dict], None]:
    def run(batch: dict) -> None:
        with torch.inference_mode():
            model(**batch)

    return run


def training_step(model: torch.nn.Module) -> Callable[[dict], None]:
    # No optimizer state: native BERT-base, at 16 x 512 tokens, and its twin are to fit into 24 GB together.
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)

    def run(batch: dict) -> None:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


def timed(name: str, native_class: type, batches: list[dict], settings: Settings, goal: str, **sizes: int) -> Result:
    training = "labels" in batches[0]
    models = pair(native_class, settings, training, **sizes)
    batches = [{key: states.to(settings.device) for key, states in batch.items()} for batch in batches]
    result = interleave(*map(training_step if training else forward, models), batches)
    return Result(name, f"{result.native:.3f} s", f"{result.zoo:.3f} s", result.ratio, goal)


def peak_memory(which: str, batches: str, settings: Settings) -> int:
    """Bytes above weights and gradients at the peak of a masked-language-modelling step, in a process of its own."""
    arguments = [which, batches, settings.device, str(settings.dtype).split(".")[-1], settings.attention]
    command = [sys.executable, "-m", "tests.benchmarks.peak_memory", *arguments, str(settings.layers)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def remembered(name: str, batches: str, settings: Settings, goal: str) -> Result:
    native, zoo = (peak_memory(which, batches, settings) for which in ("native", "zoo"))
    return Result(name, f"{native / 2**30:.2f} GiB", f"{zoo / 2**30:.2f} GiB", zoo / native, goal)


def run(settings: Settings, chosen: str) -> Iterator[Result]:
    """The results, as they come, of the benchmarks whose names hold `chosen`."""
    ragged, source = review_batches(settings.rounds, BATCH_SIZE, MAX_LENGTH)
    real = sum(batch["attention_mask"].sum() for batch in ragged) / sum(batch["input_ids"].numel() for batch in ragged)
    print(f"{len(ragged)} batches of {BATCH_SIZE}, at most {MAX_LENGTH} tokens: {source}, {real:.0%} of slots are real")
    full = without_padding(ragged, MAX_LENGTH)
    halves = torch.arange(BATCH_SIZE) % 2
    labelled = [batch | {"labels": halves} for batch in ragged]
    shorter = [batch | {"labels": halves} for batch in review_batches(settings.rounds, BATCH_SIZE, 256)[0]]
    classifier = BertForSequenceClassification
    benchmarks = {
        "fine-tuning step, MiniLM at 256": lambda name: timed(name, classifier, shorter, settings, "", **MINILM),
        "inference": lambda name: timed(name, BertModel, ragged, settings, ">= 1.7"),
        "inference, no padding": lambda name: timed(name, BertModel, full, settings, ">= 0.97"),
        "training step": lambda name: timed(name, classifier, labelled, settings, ">= 1.6"),
        "MLM step": lambda name: timed(name, BertForMaskedLM, masked(ragged), settings, ">= 2.0"),
        "MLM step, no padding": lambda name: timed(name, BertForMaskedLM, masked(full), settings, ">= 1.2"),
        "MLM peak memory": lambda name: remembered(name, "ragged", settings, "<= 0.45"),
        "MLM peak memory, no padding": lambda name: remembered(name, "full", settings, ""),
    }
    for name, benchmark in benchmarks.items():
        if chosen.lower() in name.lower():
            yield benchmark(name)
