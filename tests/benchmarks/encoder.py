"""The encoder family against native BERT: what is timed, and the figure that is aimed at."""

from collections.abc import Callable, Iterator

import torch
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel

import tfm_zoo

from .batches import masked, review_batches, without_padding
from .settings import Result, Settings, remembered, training_step
from .timing import interleave

BATCH_SIZE, MAX_LENGTH = 16, 512
MINILM = {"num_hidden_layers": 6, "hidden_size": 384, "intermediate_size": 1536}  # all-MiniLM-L6-v2


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


def timed(name: str, native_class: type, batches: list[dict], settings: Settings, goal: str, **sizes: int) -> Result:
    training = "labels" in batches[0]
    models = pair(native_class, settings, training, **sizes)
    batches = [{key: states.to(settings.device) for key, states in batch.items()} for batch in batches]
    result = interleave(*map(training_step if training else forward, models), batches)
    return Result(name, f"{result.native:.3f} s", f"{result.zoo:.3f} s", result.ratio, goal)


def memory_case(settings: Settings, kind: str) -> tuple[torch.nn.Module, torch.nn.Module, dict]:
    """Native and zoo model and the batch for [`peak_memory`]: "ragged" or "full" in masked language modelling."""
    batches, _ = review_batches(2, BATCH_SIZE, MAX_LENGTH)
    batches = masked(batches if kind == "ragged" else without_padding(batches, MAX_LENGTH))
    return *pair(BertForMaskedLM, settings, training=True), batches[1]


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
        "MLM peak memory": lambda name: remembered(name, "encoder", "ragged", settings, "<= 0.45"),
        "MLM peak memory, no padding": lambda name: remembered(name, "encoder", "full", settings, ""),
    }
    for name, benchmark in benchmarks.items():
        if chosen.lower() in name.lower():
            yield benchmark(name)
