"""The encoder family against official BERT and its successors: what is timed, and the figure that is aimed at."""

from collections.abc import Callable
from functools import cache, partial

import torch
from transformers import (
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    ModernBertModel,
    MPNetModel,
    NomicBertModel,
    T5EncoderModel,
)

import tfm_zoo

from .batches import masked, review_batches, without_padding
from .settings import Result, Settings, remembered, training_step
from .timing import interleave

BATCH_SIZE, MAX_LENGTH = 16, 512
MINILM = {"num_hidden_layers": 6, "hidden_size": 384, "intermediate_size": 1536}  # all-MiniLM-L6-v2


def pair(
    official_class: type, settings: Settings, training: bool, **sizes: int
) -> tuple[torch.nn.Module, torch.nn.Module]:
    """An official model of random weights, of its base size unless `sizes` say otherwise, and its zoo twin."""
    torch.manual_seed(0)
    config = official_class.config_class(**{"num_hidden_layers": settings.layers} | sizes)
    if official_class._supports_sdpa:  # MPNet computes its own
        config._attn_implementation = settings.official_attention
    official = official_class(config).to(settings.dtype)
    zoo = tfm_zoo.from_official(official, attn_implementation=settings.attention)
    return tuple(model.to(settings.device).train(training) for model in (official, zoo))


def forward(model: torch.nn.Module) -> Callable[[dict], None]:
    def run(batch: dict) -> None:
        with torch.inference_mode():
            model(**batch)

    return run


def timed(
    name: str,
    official_class: type,
    batches: list[dict],
    settings: Settings,
    goal: str,
    autocast: bool = False,
    **sizes: int,
) -> Result:
    training = "labels" in batches[0]
    models = pair(official_class, settings, training, **sizes)
    batches = [{key: states.to(settings.device) for key, states in batch.items()} for batch in batches]
    step = partial(training_step, autocast=autocast) if training else forward
    result = interleave(*map(step, models), batches)
    return Result(name, f"{result.official:.3f} s", f"{result.zoo:.3f} s", result.ratio, goal)


def memory_case(settings: Settings, kind: str) -> tuple[torch.nn.Module, torch.nn.Module, dict]:
    """Official and zoo model and the batch for [`peak_memory`]: "ragged" or "full" in masked language modelling."""
    batches, _ = review_batches(2, BATCH_SIZE, MAX_LENGTH)
    batches = masked(batches if kind == "ragged" else without_padding(batches, MAX_LENGTH))
    return *pair(BertForMaskedLM, settings, training=True), batches[1]


@cache
def reviews(count: int, max_length: int = MAX_LENGTH) -> list[dict]:
    batches, source = review_batches(count, BATCH_SIZE, max_length)
    real = sum(batch["attention_mask"].sum() for batch in batches) / sum(one["input_ids"].numel() for one in batches)
    print(f"{count} batches of {BATCH_SIZE}, at most {max_length} tokens: {source}, {real:.0%} of slots are real")
    return batches


def benchmarks(settings: Settings) -> dict[str, Callable[[str], Result]]:
    """What can be run: a name -> a function that takes the name and gives the result."""

    def ragged(max_length: int = MAX_LENGTH) -> list[dict]:
        return reviews(settings.rounds, max_length)

    def full() -> list[dict]:
        return without_padding(ragged(), MAX_LENGTH)

    def classified(max_length: int = MAX_LENGTH) -> list[dict]:
        return [batch | {"labels": torch.arange(BATCH_SIZE) % 2} for batch in ragged(max_length)]

    classifier = BertForSequenceClassification
    return {
        "fine-tuning step, MiniLM at 256": lambda name: timed(
            name, classifier, classified(256), settings, "", **MINILM
        ),
        "inference": lambda name: timed(name, BertModel, ragged(), settings, ">= 1.7"),
        "inference, NomicBERT": lambda name: timed(name, NomicBertModel, ragged(), settings, ">= 1.5"),
        "inference, ModernBERT": lambda name: timed(name, ModernBertModel, ragged(), settings, ">= 1.5"),
        "inference, MPNet": lambda name: timed(
            name, MPNetModel, ragged(), settings, ">= 1.5", max_position_embeddings=514
        ),
        "inference, T5's encoder": lambda name: timed(name, T5EncoderModel, ragged(), settings, ">= 1.5"),
        "inference, no padding": lambda name: timed(name, BertModel, full(), settings, ">= 0.97"),
        "training step": lambda name: timed(name, classifier, classified(), settings, ">= 1.6"),
        "training step, bfloat16 autocast": lambda name: timed(
            name, classifier, classified(), settings, "", autocast=True
        ),
        "MLM step": lambda name: timed(name, BertForMaskedLM, masked(ragged()), settings, ">= 2.0"),
        "MLM step, no padding": lambda name: timed(name, BertForMaskedLM, masked(full()), settings, ">= 1.2"),
        "MLM peak memory": lambda name: remembered(name, "encoder", "ragged", settings, "<= 0.45"),
        "MLM peak memory, no padding": lambda name: remembered(name, "encoder", "full", settings, ""),
    }
