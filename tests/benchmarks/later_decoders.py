"""Decoders of published widths, with few layers, against official classes: decoding, a training step, its memory.

A batch to train on is full, with a label everywhere, or ragged: conversations, of which the answers alone have labels.
"""

from collections.abc import Callable
from functools import partial

import torch
import transformers
from torch import nn

from ..published_sizes import PUBLISHED
from .decoder import PROMPT, batches, compared, compared_decoding, labelled, twins
from .settings import Result, Settings, remembered, training_step

LAYERS = 3  # at most
FULL = 2  # rows of a full batch
CONVERSATIONS = (1.0, 0.6, 0.35, 0.1)  # rows of a ragged one: parts of the longest, so that half of it is padding
ANSWERED = 0.4  # the part of a conversation, at its end, that is an answer
#: name -> official class, its fields, and how much memory a training step may take: logits are most of it where the
#: vocabulary is large
DECODERS = {
    "Qwen3": ("Qwen3ForCausalLM", PUBLISHED["qwen3-0.6b"], "<= 0.6"),
    "Gemma3": ("Gemma3ForCausalLM", PUBLISHED["gemma-3-270m"], "<= 0.6"),
    "Pythia": ("GPTNeoXForCausalLM", PUBLISHED["pythia-160m"], ""),
    # a quarter of its published widths, of which a single layer would take 5.6 GB
    "Mixtral": (
        "MixtralForCausalLM",
        {"hidden_size": 1024, "intermediate_size": 3584, "num_attention_heads": 8, "num_key_value_heads": 2},
        "",
    ),
}


def pair(settings: Settings, name: str, training: bool = False) -> tuple[nn.Module, nn.Module]:
    """An official model of random weights and its zoo twin."""
    model_class = getattr(transformers, DECODERS[name][0])
    fields = DECODERS[name][1] | {"num_hidden_layers": min(settings.layers, LAYERS)}
    return twins(model_class, model_class.config_class(**fields), settings, training)


def inputs_for(model: nn.Module, settings: Settings, batch: int, length: int) -> list[dict]:
    return batches(settings, batch, length, low=5, high=model.config.vocab_size)


def decoded(name: str, settings: Settings, which: str, batch: int) -> Result:
    official, zoo = pair(settings, which)
    return compared_decoding(name, official, zoo, inputs_for(official, settings, batch, PROMPT), ">= 1.0")


def learned(model: nn.Module, settings: Settings, is_ragged: bool) -> list[dict]:
    """Batches to train on, whose longest rows have `settings.length` tokens."""
    length = settings.length
    if not is_ragged:
        return labelled(inputs_for(model, settings, FULL, length))
    places, ends = torch.arange(length, device=settings.device), [round(part * length) for part in CONVERSATIONS]
    ends = torch.tensor(ends, device=settings.device)[:, None]
    mask, answers = places < ends, (places >= (1 - ANSWERED) * ends) & (places < ends)
    found = inputs_for(model, settings, len(ends), length)
    return [
        {
            "input_ids": batch["input_ids"] * mask,
            "attention_mask": mask.long(),
            "labels": batch["input_ids"].where(answers, -100),
        }
        for batch in found
    ]


def trained(name: str, settings: Settings, which: str, is_ragged: bool) -> Result:
    official, zoo = pair(settings, which, training=True)
    inputs = learned(official, settings, is_ragged)
    return compared(name, official, zoo, training_step, inputs, ">= 1.2")


def memory_case(settings: Settings, kind: str) -> tuple[nn.Module, nn.Module, dict]:
    """Official and zoo model and the batch for [`peak_memory`]; `kind` names the model and the batch."""
    which, _, ragged = kind.partition(" ")
    official, zoo = pair(settings, which, training=True)
    return official, zoo, learned(official, settings, bool(ragged))[0]


def benchmarks(settings: Settings) -> dict[str, Callable[[str], Result]]:
    """What can be run: a name -> a function that takes the name and gives the result."""
    found = {}
    for which, (_, _, memory_goal) in DECODERS.items():
        for batch in (1, 4):
            found[f"{which} decoding, batch {batch}"] = partial(decoded, settings=settings, which=which, batch=batch)
        for batch, is_ragged in (("", False), (" ragged", True)):
            step = partial(trained, settings=settings, which=which, is_ragged=is_ragged)
            memory = {"family": "later_decoders", "kind": which + batch, "settings": settings, "goal": memory_goal}
            found[f"{which}{batch} training step"] = step
            found[f"{which}{batch} peak memory"] = partial(remembered, **memory)
    return found
