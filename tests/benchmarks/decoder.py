"""The decoder family against official GPT-2: what is timed, and the figure that is aimed at."""

from collections.abc import Callable
from functools import partial

import torch
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedConfig, PreTrainedModel

import tfm_zoo

from .settings import Result, Settings, remembered, training_step
from .timing import interleave

PROMPT, NEW_TOKENS, PREFILL = 32, 64, 1024
TRAINED = (8, 512)  # (batch, length) of a training step


def pair(settings: Settings, training: bool = False) -> tuple[torch.nn.Module, torch.nn.Module]:
    """A GPT-2 of random weights and its zoo twin."""
    return twins(GPT2LMHeadModel, GPT2Config(n_layer=settings.layers), settings, training)


def twins(
    model_class: type[PreTrainedModel], config: PreTrainedConfig, settings: Settings, training: bool
) -> tuple[torch.nn.Module, torch.nn.Module]:
    """An official model of random weights and its zoo twin."""
    torch.manual_seed(0)
    config._attn_implementation = settings.official_attention
    official = model_class(config).to(settings.dtype)
    zoo = tfm_zoo.from_official(official, attn_implementation=settings.attention)
    return tuple(model.to(settings.device).train(training) for model in (official, zoo))


def batches(settings: Settings, batch: int, length: int, low: int = 0, high: int = 50257) -> list[dict]:
    """Batches of ids from `low` to below `high`."""
    generator = torch.Generator().manual_seed(0)
    ids = [torch.randint(low, high, (batch, length), generator=generator) for _ in range(settings.rounds)]
    return [{"input_ids": one.to(settings.device)} for one in ids]


def decode(model: torch.nn.Module) -> Callable[[dict], None]:
    def run(batch: dict) -> None:
        mask = torch.ones_like(batch["input_ids"])
        end = model.config.vocab_size  # no token: all sequences reach their full length
        options = {"max_new_tokens": NEW_TOKENS, "do_sample": False, "pad_token_id": 0, "eos_token_id": end}
        model.generate(**batch, attention_mask=mask, **options)

    return run


def prefill(model: torch.nn.Module) -> Callable[[dict], None]:
    def run(batch: dict) -> None:
        with torch.inference_mode():
            model(**batch, use_cache=True, logits_to_keep=1)

    return run


def decoded(name: str, settings: Settings, batch: int, goal: str, int8: bool = False) -> Result:
    official, zoo = pair(settings)
    if int8:
        tfm_zoo.quantize_int8(zoo)
    return compared_decoding(name, official, zoo, batches(settings, batch, PROMPT), goal)


def compared_decoding(
    name: str, official: torch.nn.Module, zoo: torch.nn.Module, inputs: list[dict], goal: str
) -> Result:
    result = interleave(decode(official), decode(zoo), inputs)
    times = (f"{1000 * seconds / NEW_TOKENS:.1f} ms/token" for seconds in (result.official, result.zoo))
    return Result(name, *times, result.ratio, goal)


def timed(name: str, settings: Settings, step: Callable, inputs: list[dict], goal: str) -> Result:
    return compared(name, *pair(settings, training="labels" in inputs[0]), step, inputs, goal)


def compared(
    name: str, official: torch.nn.Module, zoo: torch.nn.Module, step: Callable, inputs: list[dict], goal: str
) -> Result:
    result = interleave(step(official), step(zoo), inputs)
    return Result(name, f"{result.official:.3f} s", f"{result.zoo:.3f} s", result.ratio, goal)


def labelled(inputs: list[dict]) -> list[dict]:
    return [batch | {"labels": batch["input_ids"]} for batch in inputs]


def memory_case(settings: Settings, kind: str) -> tuple[torch.nn.Module, torch.nn.Module, dict]:
    """Official and zoo model and the batch for [`peak_memory`]."""
    return *pair(settings, training=True), labelled(batches(settings, *TRAINED))[0]


def benchmarks(settings: Settings) -> dict[str, Callable[[str], Result]]:
    """What can be run: a name -> a function that takes the name and gives the result."""
    trained = partial(batches, settings, *TRAINED)
    found = {
        "GPT-2 decoding, batch 1": lambda name: decoded(name, settings, 1, ">= 1.0"),
        "GPT-2 decoding, batch 8": lambda name: decoded(name, settings, 8, ">= 1.0"),
        "GPT-2 prefill": lambda name: timed(name, settings, prefill, batches(settings, 1, PREFILL), ">= 1.0"),
        "GPT-2 training step": lambda name: timed(name, settings, training_step, labelled(trained()), ">= 1.0"),
        "GPT-2 peak memory": lambda name: remembered(name, "decoder", "", settings, "<= 0.6"),
    }
    if settings.device == "cpu":
        found["GPT-2 int8 decoding, batch 1"] = lambda name: decoded(name, settings, 1, ">= 3.0", int8=True)
        found["GPT-2 int8 decoding, batch 8"] = lambda name: decoded(name, settings, 8, "", int8=True)
    return found
