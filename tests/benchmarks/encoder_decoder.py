"""The encoder-decoder family against official Marian: what is timed, and the figure that is aimed at."""

from collections.abc import Callable
from functools import cache

import torch
from transformers import MarianConfig, MarianMTModel

import tfm_zoo

from .batches import translation_batches
from .settings import Result, Settings, training_step
from .timing import interleave

TRAINED, TRANSLATED, BEAMS, TEST = 64, 32, 4, 1000
VOCABULARY = 8000  # and padding, which the decoder also starts with
#: about 9.4 million parameters, and the size of the opus-mt models
SIZES = {"Marian, 9M": (4, 256, 4, 1024), "Marian, opus-mt": (6, 512, 8, 2048)}


def pair(size: str, settings: Settings, training: bool) -> tuple[torch.nn.Module, torch.nn.Module]:
    """A Marian of random weights and its zoo twin."""
    layers, width, heads, inner = SIZES[size]
    torch.manual_seed(0)
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in {"layers": layers, "attention_heads": heads, "ffn_dim": inner}.items()
    }
    specials = {"pad_token_id": VOCABULARY, "decoder_start_token_id": VOCABULARY, "eos_token_id": 0}
    config = MarianConfig(
        vocab_size=VOCABULARY + 1, d_model=width, activation_function="swish", scale_embedding=True, **sides, **specials
    )
    config._attn_implementation = settings.official_attention
    official = MarianMTModel(config).to(settings.dtype)
    zoo = tfm_zoo.from_official(official, attn_implementation=settings.attention)
    return tuple(model.to(settings.device).train(training) for model in (official, zoo))


@cache
def batches(split: str, size: int, count: int) -> list[dict]:
    found, source = translation_batches(split, size, count, VOCABULARY)
    real = {name: sum((one[name] != -100).sum() for one in found) for name in ("labels",)}
    real["attention_mask"] = sum(one["attention_mask"].sum() for one in found)
    shares = [f"{real[name] / sum(one[name].numel() for one in found):.0%}" for name in ("attention_mask", "labels")]
    print(f"{len(found)} batches of {size}: {source}; {shares[0]} and {shares[1]} of the slots are real")
    return found


def translate(model: torch.nn.Module) -> Callable[[dict], None]:
    """Beam search, for as many steps as the longest reference has tokens: models of random weights never end."""

    def run(batch: dict) -> None:
        steps = batch["labels"].shape[1]
        model.generate(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            num_beams=BEAMS,
            min_new_tokens=steps,
            max_new_tokens=steps,
        )

    return run


def timed(name: str, size: str, settings: Settings, goal: str) -> Result:
    training = "training" in name
    inputs = (
        batches("train", TRAINED, 4 * settings.rounds) if training else batches("test", TRANSLATED, TEST // TRANSLATED)
    )
    inputs = [{key: states.to(settings.device) for key, states in batch.items()} for batch in inputs]
    step = training_step if training else translate
    result = interleave(*map(step, pair(size, settings, training)), inputs)
    return Result(name, f"{result.official:.3f} s", f"{result.zoo:.3f} s", result.ratio, goal)


def benchmarks(settings: Settings) -> dict[str, Callable[[str], Result]]:
    """What can be run: a name -> a function that takes the name and gives the result."""
    kinds = {"training step": ">= 1.2", "beam search": ">= 1.1"}
    return {
        f"{size}, {kind}": lambda name, size=size, goal=goal: timed(name, size, settings, goal)
        for size in SIZES
        for kind, goal in kinds.items()
    }
