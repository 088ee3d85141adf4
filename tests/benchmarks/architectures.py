"""`python -m tests.benchmarks.architectures [--only NAME] [--packed]`: encoders and encoder-decoders against official
classes.

Each has its published width and a few layers. Encoders read reviews and classify; encoder-decoders translate Multi30k.
Batches are ragged, as texts are, or full: then no position holds padding. Goal: at least 1.5 where they are ragged,
0.97 where they are full. Packed weights, of encoders in inference, stand beside the official class in float32.
"""

import copy
from collections.abc import Callable
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table
from transformers.modeling_outputs import TokenClassifierOutput

import tfm_zoo

from .batches import review_batches, translation_batches, without_padding
from .encoder import forward
from .settings import training_step
from .timing import interleave

LAYERS, REVIEWS, LENGTH, PAIRS = 3, 8, 512, 64
#: the vocabulary of the reviews' tokens, and that of the translations', with a token for padding
WORDS, PIECES, END = 30522, 8000, 2
ENCODERS = (
    *("modernbert-base", "nomic-embed-text-v1.5", "eurobert-210m", "gte-multilingual-base", "jina-embeddings-v3"),
    *("electra-small", "mpnet-base", "albert-base-v2", "xlm-roberta-xl", "deberta-v3-base", "embeddinggemma-300m"),
)
ENCODER_DECODERS = ("t5-small", "flan-t5-base", "nllb-200-distilled-600m", "pegasus-large", "blenderbot-400m-distill")
Inputs = list[dict[str, torch.Tensor]]


def encoder_pair(name: str) -> tuple[torch.nn.Module, torch.nn.Module]:
    """An official classifier of random weights and its zoo twin."""
    layers = 1 if name == "xlm-roberta-xl" else LAYERS  # it is 2560 wide
    kinds = tfm_zoo.named_config(name).layer_types[:layers]
    tokens = {"vocab_size": WORDS, "pad_token_id": 1, "bos_token_id": None, "eos_token_id": None}
    config = tfm_zoo.named_config(name, num_hidden_layers=layers, layer_types=kinds, **tokens)
    if name == "embeddinggemma-300m":  # whose official class has no head
        return tuple(map(WithLoss, twins(tfm_zoo.TfmBertModel(config))))
    return twins(getattr(tfm_zoo, config.auto_classes["AutoModelForSequenceClassification"])(config))


class WithLoss(torch.nn.Module):
    """A base model, with a loss that reads its states."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model, self.config, self.device = model, model.config, model.device

    def forward(self, labels: torch.Tensor | None = None, **batch: torch.Tensor) -> TokenClassifierOutput:
        states = self.model(**batch).last_hidden_state
        loss = (states * batch["attention_mask"].unsqueeze(-1)).square().mean()
        return TokenClassifierOutput(loss=loss, logits=states)


def encoder_decoder_pair(name: str) -> tuple[torch.nn.Module, torch.nn.Module]:
    sizes = {"num_hidden_layers": LAYERS, "decoder_layers": LAYERS, "vocab_size": PIECES + 8}
    tokens = {"pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": END}
    config = tfm_zoo.named_config(name, **sizes, **tokens)
    return twins(tfm_zoo.TfmEncoderDecoderForConditionalGeneration(config))


def twins(zoo: torch.nn.Module) -> tuple[torch.nn.Module, torch.nn.Module]:
    zoo.set_attn_implementation("sdpa")
    official = tfm_zoo.to_official(zoo)
    if official._supports_sdpa:  # MPNet computes its own
        official.set_attn_implementation("sdpa")
    return official, zoo


def reviews(count: int, size: int) -> tuple[Inputs, Inputs]:
    """Ragged batches with labels, and full ones."""
    ragged, source = review_batches(count, size, LENGTH)
    report(f"{count} batches of {size}, {source}", ragged, "attention_mask")
    labels = {"labels": torch.arange(size) % 2}
    return [batch | labels for batch in ragged], [batch | labels for batch in without_padding(ragged, LENGTH)]


def translations(count: int, size: int) -> tuple[Inputs, Inputs]:
    found, source = translation_batches("train", size, count, PIECES)
    # M2M100's positions begin behind the number of the token for padding, so that it is to be a low one.
    ragged = [batch | {"input_ids": (batch["input_ids"] + END) % (PIECES + END)} for batch in found]
    report(f"{count} batches of {size}, {source}", ragged, "attention_mask")
    full = []
    for seed, batch in enumerate(ragged):
        generator = torch.Generator().manual_seed(seed)
        ids, labels = (
            torch.randint(3, PIECES, batch[name].shape, generator=generator) for name in ("input_ids", "labels")
        )
        full.append({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels})
    return ragged, full


def report(what: str, batches: Inputs, mask: str) -> None:
    real = sum(int(batch[mask].sum()) for batch in batches) / sum(batch[mask].numel() for batch in batches)
    print(f"{what}: {real:.0%} of the slots hold a real token")


def ratios(official: torch.nn.Module, zoo: torch.nn.Module, step: Callable, *inputs: Inputs) -> list[str]:
    """Seconds of both, and how many times as fast the zoo is, for each list of batches."""
    cells = []
    for batches in inputs:
        result = interleave(step(official), step(zoo), batches)
        cells.append(f"{result.official:.3f} / {result.zoo:.3f} = {result.ratio:.2f}")
    return cells


def without_labels(batches: Inputs) -> Inputs:
    return [{name: states for name, states in batch.items() if name != "labels"} for batch in batches]


def row(official: torch.nn.Module, zoo: torch.nn.Module, ragged: Inputs, full: Inputs) -> list[str]:
    read = (ragged, full)
    if not official.config.is_encoder_decoder:  # whose decoder reads them
        read = map(without_labels, read)
    inference = ratios(official.eval(), zoo.eval(), forward, *read)
    training = ratios(official.train(), zoo.train(), training_step, ragged, full)
    return [name_of(official), *inference, *training]


def packed_rows(official: torch.nn.Module, zoo: torch.nn.Module, *inputs: Inputs) -> list[list[str]]:
    """Inference with packed weights, for each type that they may have."""
    rows = []
    for dtype in ("bfloat16", "int8"):
        packed = copy.deepcopy(zoo).eval()
        tfm_zoo.pack_weights(packed.model if isinstance(packed, WithLoss) else packed, dtype)
        cells = ratios(official.eval(), packed, forward, *map(without_labels, inputs))
        rows.append([f"{name_of(official)}, zoo packed, {dtype}", *cells, "", ""])
    return rows


def name_of(official: torch.nn.Module) -> str:
    return type(official.model if isinstance(official, WithLoss) else official).__name__


def main(
    only: Annotated[str, typer.Option(help="Run those whose name holds this.")] = "",
    rounds: Annotated[int, typer.Option(help="Batches that count.")] = 3,
    smaller: Annotated[int, typer.Option(help="Divides the sizes of the batches, for wide models.")] = 1,
    packed: Annotated[bool, typer.Option(help="Also encoders with packed weights.")] = False,
) -> None:
    """Times each pair: interleaved, medians, ratio."""
    steps = ("inference, ragged", "inference, full", "training step, ragged", "training step, full")
    table = Table("official class", *steps, title="seconds, official / zoo = ratio")
    kinds = (
        (ENCODERS, reviews, REVIEWS, encoder_pair),
        (ENCODER_DECODERS, translations, PAIRS, encoder_decoder_pair),
    )
    for names, make, size, pair in kinds:
        chosen = [name for name in names if only in name]
        batches = make(rounds, size // smaller) if chosen else ()
        for name in chosen:
            torch.manual_seed(0)
            models = pair(name)
            rows = [row(*models, *batches)]
            rows += packed_rows(*models, *batches) if packed and names is ENCODERS else []
            for cells in rows:
                print(*cells, sep=" | ", flush=True)
                table.add_row(*cells)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
