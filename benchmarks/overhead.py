"""What Python costs: models so small that arithmetic hardly counts, against the official classes.

On a CPU it is the process's own time on one thread that counts, which other programs of the machine change little.
"""

from collections.abc import Callable, Iterator
from itertools import repeat
from time import perf_counter, process_time
from typing import Annotated

import torch
import transformers
import typer
from transformers import PreTrainedModel

import tfm_zoo

from .pairs import Step, forward, train, write
from .timing import interleave, table

LAYERS, WIDTH, HEADS, INNER, VOCABULARY = 4, 64, 4, 128, 128
BATCH, LENGTH, NEW_TOKENS, BEAMS = 4, 16, 16, 4
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SIDES = {"layers": LAYERS, "attention_heads": HEADS, "ffn_dim": INNER}
CONFIGS = {
    "BertModel": {"intermediate_size": INNER},
    "GPT2LMHeadModel": {"n_inner": INNER, **TOKENS},
    "LlamaForCausalLM": {"intermediate_size": INNER, "num_key_value_heads": 2, **TOKENS},
    "MarianMTModel": {
        **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in SIDES.items()},
        **TOKENS,
        "decoder_start_token_id": 0,
        "scale_embedding": True,
    },
}


def pair(name: str, device: str, training: bool) -> list[PreTrainedModel]:
    """A tiny official model of random weights, by the name of its class, and its zoo twin."""
    torch.manual_seed(0)
    model_class = getattr(transformers, name)
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    official = model_class(model_class.config_class(vocab_size=VOCABULARY, **sizes | CONFIGS[name]))
    return [model.to(device).train(training) for model in (official, tfm_zoo.from_official(official))]


def batch(is_ragged: bool) -> dict[str, torch.Tensor]:
    """`(BATCH, LENGTH)` ids and mask; padded on the right where they are ragged."""
    ids = torch.randint(3, VOCABULARY, (BATCH, LENGTH), generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([LENGTH, 5, 11, 8] if is_ragged else [LENGTH] * BATCH)[:, None]
    mask = (torch.arange(LENGTH) < lengths).long()
    return {"input_ids": ids * mask, "attention_mask": mask}


def decode(model: PreTrainedModel) -> Step:
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


FULL, RAGGED = batch(is_ragged=False), batch(is_ragged=True)
LABELLED = RAGGED | {"labels": RAGGED["input_ids"].masked_fill(RAGGED["input_ids"] == 0, -100)}
CASES: dict[str, tuple[str, Callable[[PreTrainedModel], Step], dict]] = {
    "BERT, full": ("BertModel", forward, FULL),
    "BERT, ragged": ("BertModel", forward, RAGGED),
    "GPT-2 decoding": ("GPT2LMHeadModel", decode, FULL),
    "GPT-2 generate": ("GPT2LMHeadModel", write(NEW_TOKENS), FULL),
    "LLaMA decoding": ("LlamaForCausalLM", decode, FULL),
    "LLaMA generate": ("LlamaForCausalLM", write(NEW_TOKENS), FULL),
    "Marian decoding": ("MarianMTModel", decode, RAGGED),
    "Marian beam search": ("MarianMTModel", write(NEW_TOKENS, BEAMS), RAGGED),
    "Marian training step": ("MarianMTModel", train, LABELLED),
}


def timed(only: str, device: str, calls: int) -> Iterator[list[str]]:
    clock = process_time if device == "cpu" else perf_counter
    for name, (model, step, inputs) in CASES.items():
        if only.lower() in name.lower():
            inputs = {key: each.to(device) for key, each in inputs.items()}
            result = interleave(*map(step, pair(model, device, step is train)), repeat(inputs, calls), clock)
            yield [name, *(f"{1000 * each:.2f} ms" for each in (result.official, result.zoo)), f"{result.ratio:.2f}"]


def main(
    only: Annotated[str, typer.Option(help="Run those whose name holds this.")] = "",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    calls: Annotated[int, typer.Option(help="Timed calls of each side.")] = 100,
) -> None:
    """Prints the milliseconds of a call of the official class, of the zoo's, and the ratio."""
    torch.set_num_threads(1)  # threads cost more than they give here, and time that varies
    table(["call", "official", "zoo", "ratio"], timed(only, device, calls))
