"""What Python costs: models so small that arithmetic hardly counts, against the official classes.

What counts is the process's own time on one thread, which other programs of the machine change little.
"""

from collections.abc import Callable, Iterator
from itertools import islice, repeat
from time import process_time
from typing import Annotated

import torch
import typer
from transformers import PreTrainedModel

from .batches import padded
from .pairs import Step, decoding, forward, tiny, train, write
from .timing import compare, table

LAYERS, NEW_TOKENS, BEAMS = 4, 16, 4


def batch(*lengths: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return padded([torch.randint(3, 128, (length,), generator=generator) for length in lengths])


def decode(model: PreTrainedModel) -> Step:
    @torch.inference_mode()
    def run(inputs: dict) -> None:
        list(islice(decoding(model, inputs), NEW_TOKENS))

    return run


FULL, RAGGED = batch(16, 16, 16, 16), batch(16, 5, 11, 8)
LABELLED = RAGGED | {"labels": RAGGED["input_ids"].masked_fill(RAGGED["attention_mask"] == 0, -100)}
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


def timed(only: str, calls: int) -> Iterator[list[str]]:
    for name, (model, step, inputs) in CASES.items():
        if only.lower() in name.lower():
            steps = (step(each.train(step is train)) for each in tiny(model, LAYERS))
            official, zoo, ratio = compare(*steps, repeat(inputs, 1 + calls), process_time)
            yield [name, f"{1000 * official:.2f} ms", f"{1000 * zoo:.2f} ms", f"{ratio:.2f}"]


def main(
    only: Annotated[str, typer.Option(help="Run those whose name holds this.")] = "",
    calls: Annotated[int, typer.Option(help="Timed calls of each side.")] = 100,
) -> None:
    """Prints the milliseconds of a call of the official class, of the zoo's, and the ratio."""
    torch.set_num_threads(1)  # threads cost more than they give here, and time that varies
    table(["call", "official", "zoo", "ratio"], timed(only, calls))
