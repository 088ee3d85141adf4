"""What Python costs: models so small that arithmetic hardly counts, against the official classes.

On a CPU it is the process's own time on one thread that counts, which other programs of the machine change little.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from time import perf_counter, process_time

import torch
import transformers
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

import tfm_zoo

from .settings import Result, Settings, training_step
from .timing import interleave

LAYERS, WIDTH, HEADS, INNER, VOCABULARY = 4, 64, 4, 128, 128
BATCH, LENGTH, NEW_TOKENS, BEAMS = 4, 16, 16, 4
PAIRS = 20  # of timed calls, for each of the settings' rounds
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
CONFIGS = {
    "BertModel": {"intermediate_size": INNER},
    "GPT2LMHeadModel": {"n_inner": INNER, **TOKENS},
    "LlamaForCausalLM": {"intermediate_size": INNER, "num_key_value_heads": 2, **TOKENS},
    "MarianMTModel": {
        **{f"{side}_layers": LAYERS for side in ("encoder", "decoder")},
        **{f"{side}_attention_heads": HEADS for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": INNER for side in ("encoder", "decoder")},
        **TOKENS,
        "decoder_start_token_id": 0,
        "scale_embedding": True,
    },
}


def pair(name: str, settings: Settings, training: bool = False) -> list[PreTrainedModel]:
    """A tiny official model of random weights, by the name of its class, and its zoo twin."""
    torch.manual_seed(0)
    model_class = getattr(transformers, name)
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    config: PreTrainedConfig = model_class.config_class(vocab_size=VOCABULARY, **sizes | CONFIGS[name])
    config._attn_implementation = settings.official_attention
    official = model_class(config).to(settings.dtype)
    zoo = tfm_zoo.from_official(official, attn_implementation=settings.attention)
    return [model.to(settings.device).train(training) for model in (official, zoo)]


def batch(settings: Settings, ragged: bool = False) -> dict[str, torch.Tensor]:
    """`(BATCH, LENGTH)` ids and mask; padded on the right where they are ragged."""
    ids = torch.randint(3, VOCABULARY, (BATCH, LENGTH), generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([LENGTH, 5, 11, 8] if ragged else [LENGTH] * BATCH)[:, None]
    mask = (torch.arange(LENGTH) < lengths).long()
    return {"input_ids": (ids * mask).to(settings.device), "attention_mask": mask.to(settings.device)}


def forward(model: PreTrainedModel) -> Callable[[dict], None]:
    def run(inputs: dict) -> None:
        with torch.inference_mode():
            model(**inputs)

    return run


def decode(model: PreTrainedModel) -> Callable[[dict], None]:
    """Greedy decoding, a forward call for each token: of `generate`, nothing."""

    def run(inputs: dict) -> None:
        with torch.inference_mode():
            if model.config.is_encoder_decoder:
                mask, states = inputs["attention_mask"], model.get_encoder()(**inputs)
                inputs = {"attention_mask": mask, "encoder_outputs": states}
                ids, name = torch.zeros_like(mask[:, :1]), "decoder_input_ids"
            else:
                ids, name, inputs = inputs["input_ids"], "input_ids", {}
            cache = None
            for _ in range(NEW_TOKENS):
                outputs = model(**inputs, **{name: ids}, past_key_values=cache, use_cache=True)
                cache, ids = outputs.past_key_values, outputs.logits[:, -1:].argmax(dim=-1)

    return run


def generate(beams: int) -> Callable[[PreTrainedModel], Callable[[dict], None]]:
    options = {"num_beams": beams, "do_sample": False, "min_new_tokens": NEW_TOKENS, "max_new_tokens": NEW_TOKENS}

    def make(model: PreTrainedModel) -> Callable[[dict], None]:
        return lambda inputs: model.generate(**inputs, **options)

    return make


@contextmanager
def one_thread() -> Iterator[None]:
    """Threads cost more than they give here, and time that varies."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def timed(
    name: str, model: str, run: Callable[[nn.Module], Callable[[dict], None]], inputs: dict, settings: Settings
) -> Result:
    with one_thread():
        official, zoo = pair(model, settings, training=run is training_step)
        clock = process_time if settings.device == "cpu" else perf_counter
        result = interleave(run(official), run(zoo), repeat(inputs, PAIRS * settings.rounds), clock)
    goal = ">= 1.0" if run in (forward, training_step) else ">= 1.1"
    return Result(name, f"{1000 * result.official:.2f} ms", f"{1000 * result.zoo:.2f} ms", result.ratio, goal)


def benchmarks(settings: Settings) -> dict[str, Callable[[str], Result]]:
    """What can be run: a name -> a function that takes the name and gives the result."""
    full, ragged = batch(settings), batch(settings, ragged=True)
    labelled = ragged | {"labels": ragged["input_ids"].masked_fill(ragged["input_ids"] == 0, -100)}
    cases = {
        "BERT, full": ("BertModel", forward, full),
        "BERT, ragged": ("BertModel", forward, ragged),
        "GPT-2 decoding": ("GPT2LMHeadModel", decode, full),
        "GPT-2 generate": ("GPT2LMHeadModel", generate(beams=1), full),
        "LLaMA decoding": ("LlamaForCausalLM", decode, full),
        "LLaMA generate": ("LlamaForCausalLM", generate(beams=1), full),
        "Marian decoding": ("MarianMTModel", decode, ragged),
        "Marian beam search": ("MarianMTModel", generate(BEAMS), ragged),
        "Marian training step": ("MarianMTModel", training_step, labelled),
    }
    return {f"overhead, {name}": lambda title, case=case: timed(title, *case, settings) for name, case in cases.items()}
