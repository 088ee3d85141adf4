"""Decoders of published widths, with few layers, against official classes: decoding, a training step, its memory."""

from collections.abc import Callable
from functools import partial

import transformers
from torch import nn

from ..official_models import PUBLISHED
from .decoder import PROMPT, batches, compared, compared_decoding, labelled, twins
from .settings import Result, Settings, remembered, training_step

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
    model_class = getattr(transformers, DECODERS[name][0])
    fields = DECODERS[name][1] | {"num_hidden_layers": min(settings.layers, LAYERS)}
    return twins(model_class, model_class.config_class(**fields), settings, training)


def inputs_for(model: nn.Module, settings: Settings, batch: int, length: int) -> list[dict]:
    return batches(settings, batch, length, low=5, high=model.config.vocab_size)


def decoded(name: str, settings: Settings, which: str, batch: int) -> Result:
    official, zoo = pair(settings, which)
    return compared_decoding(name, official, zoo, inputs_for(official, settings, batch, PROMPT), ">= 1.0")


def trained(name: str, settings: Settings, which: str) -> Result:
    official, zoo = pair(settings, which, training=True)
    inputs = labelled(inputs_for(official, settings, *TRAINED))
    return compared(name, official, zoo, training_step, inputs, ">= 1.2")


def memory_case(settings: Settings, kind: str) -> tuple[nn.Module, nn.Module, dict]:
    """Official and zoo model, `kind` of them, and the batch for [`peak_memory`]."""
    official, zoo = pair(settings, kind, training=True)
    return official, zoo, labelled(inputs_for(official, settings, *REMEMBERED))[0]


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
