"""Decoders of published widths, with few layers, against official classes: decoding, a training step, its memory."""

from collections.abc import Callable
from functools import partial

import torch
import transformers
from torch import nn

import tfm_zoo

from ..official_models import PUBLISHED
from .decoder import NEW_TOKENS, PROMPT, decode, labelled
from .settings import Result, Settings, remembered, training_step
from .timing import interleave

LAYERS = 3  # at most
TRAINED = (2, 256)  # (batch, length) of a training step that is timed
REMEMBERED = (2, 512)  # and of one whose memory is measured
#: name -> official class, its fields, and how much memory a training step may take: logits are most of it where the
#: vocabulary is large
DECODERS = {
    "Qwen3": ("Qwen3ForCausalLM", PUBLISHED["qwen3"], "<= 0.6"),
    "Gemma3": ("Gemma3ForCausalLM", PUBLISHED["gemma3_text"], "<= 0.6"),
    "Pythia": ("GPTNeoXForCausalLM", PUBLISHED["gpt_neox"], ""),
    # a quarter of its published widths, of which a single layer would take 5.6 GB
    "Mixtral": (
        "MixtralForCausalLM",
        {"hidden_size": 1024, "intermediate_size": 3584, "num_attention_heads": 8, "num_key_value_heads": 2},
        "",
    ),
}


def pair(settings: Settings, name: str, training: bool = False) -> tuple[nn.Module, nn.Module]:
    """An official model of random weights and its zoo twin."""
    torch.manual_seed(0)
    model_class = getattr(transformers, DECODERS[name][0])
    layers = min(settings.layers, LAYERS)
    config = model_class.config_class(**DECODERS[name][1] | {"num_hidden_layers": layers})
    config._attn_implementation = settings.attention
    official = model_class(config).to(settings.dtype)
    zoo = tfm_zoo.from_official(official, attn_implementation=settings.attention)
    return tuple(model.to(settings.device).train(training) for model in (official, zoo))


def batches(settings: Settings, batch: int, length: int, vocab_size: int) -> list[dict]:
    generator = torch.Generator().manual_seed(0)
    ids = [torch.randint(5, vocab_size, (batch, length), generator=generator) for _ in range(settings.rounds)]
    return [{"input_ids": one.to(settings.device)} for one in ids]


def decoded(name: str, settings: Settings, which: str, batch: int) -> Result:
    official, zoo = pair(settings, which)
    inputs = batches(settings, batch, PROMPT, official.config.vocab_size)
    result = interleave(decode(official), decode(zoo), inputs)
    times = (f"{1000 * seconds / NEW_TOKENS:.1f} ms/token" for seconds in (result.official, result.zoo))
    return Result(name, *times, result.ratio, ">= 1.0")


def trained(name: str, settings: Settings, which: str) -> Result:
    official, zoo = pair(settings, which, training=True)
    inputs = labelled(batches(settings, *TRAINED, official.config.vocab_size))
    result = interleave(training_step(official), training_step(zoo), inputs)
    return Result(name, f"{result.official:.3f} s", f"{result.zoo:.3f} s", result.ratio, ">= 1.2")


def memory_case(settings: Settings, kind: str) -> tuple[nn.Module, nn.Module, dict]:
    """Official and zoo model, `kind` of them, and the batch for [`peak_memory`]."""
    official, zoo = pair(settings, kind, training=True)
    return official, zoo, labelled(batches(settings, *REMEMBERED, official.config.vocab_size))[0]


def benchmarks(settings: Settings) -> dict[str, Callable[[str], Result]]:
    """What can be run: a name -> a function that takes the name and gives the result."""
    found = {}
    for which, (_, _, memory_goal) in DECODERS.items():
        for batch in (1, 4):
            found[f"{which} decoding, batch {batch}"] = partial(decoded, settings=settings, which=which, batch=batch)
        found[f"{which} training step"] = partial(trained, settings=settings, which=which)
        memory = {"family": "later_decoders", "kind": which, "settings": settings, "goal": memory_goal}
        found[f"{which} peak memory"] = partial(remembered, **memory)
    return found
