"""The zoo beside the official classes, case by case: a batch, a step, a token; time and memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

import torch
import typer

from . import batches, memory
from .pairs import MINILM, Settings, Step, forward, pair, prefill, train, write
from .timing import interleave, table

CLASSIFY, MASK, READ = "AutoModelForSequenceClassification", "AutoModelForMaskedLM", "AutoModel"
WRITE, TRANSLATE = "AutoModelForCausalLM", "AutoModelForSeq2SeqLM"
#: Marian of opus-mt's vocabulary would spend most of a step on logits; padding is also what its decoder starts with
PIECES = {"vocab_size": batches.PIECES + 1, "pad_token_id": batches.PIECES, "eos_token_id": 0}
PIECES |= {"decoder_start_token_id": batches.PIECES}
NINE_MILLION = {"hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 4, "num_hidden_layers": 4}
FEW = 3  # layers, where a wide architecture has many


@dataclass(frozen=True)
class Case:
    """One line of the table.

    Args:
        model: of `named_config`; `head` and `fields` as `pairs.pair` takes them.
        step: makes what is timed of a model.
        data: gives batches for a number of rounds.
        layers: that the model has unless the command line asks for others.
        goal: of the ratio of times, or of memory.
        tokens: that a call writes: times are then those of a token.
    """

    model: str
    head: str
    step: Callable[..., Step]
    data: Callable[[int], list[dict]]
    goal: str = ""
    layers: int = 12
    tokens: int = 0
    fields: dict = field(default_factory=dict)

    def pair(self, settings: Settings) -> tuple:
        found = Settings(**vars(settings) | {"layers": settings.layers or self.layers})
        return pair(self.model, self.head, found, self.is_training, **self.fields)

    @property
    def is_training(self) -> bool:
        return getattr(self.step, "func", self.step) is train

    def inputs(self, settings: Settings) -> list[dict]:
        found = self.data(settings.rounds)
        return [{name: each.to(settings.device) for name, each in batch.items()} for batch in found]


def decoder(name: str, model: str, layers: int, **fields: object) -> Iterator[tuple[str, Case]]:
    """The cases of a decoder: tokens of one sequence and of several, and steps on full and on ragged rows."""
    high = fields.get("vocab_size", 30000)
    for rows in (1, 8):
        data = partial(batches.random_ids, rows=rows, length=32, high=high)
        case = Case(model, WRITE, write(64), data, ">= 1.0", layers, 64, fields)
        yield f"{name}, decoding, batch {rows}", case
    for kind, goal in (("full", ">= 1.0"), ("ragged", ">= 1.2")):
        data = partial(batches.conversations, length=256, high=high, is_ragged=kind == "ragged")
        yield f"{name}, training step, {kind}", Case(model, WRITE, train, data, goal, layers, fields=fields)


def encoder(model: str, **fields: object) -> Iterator[tuple[str, Case]]:
    fields |= {"vocab_size": 30522, "pad_token_id": 1, "bos_token_id": None, "eos_token_id": None}
    for kind, goal in (("ragged", ">= 1.5"), ("full", ">= 0.97")):
        data = partial(getattr(batches, kind), size=8)
        yield f"{model}, inference, {kind}", Case(model, READ, forward, data, goal, FEW, fields=fields)
        if model != "embeddinggemma-300m":  # whose official class has no head
            data = partial(batches.classified, make=data)
            yield f"{model}, training step, {kind}", Case(model, CLASSIFY, train, data, goal, FEW, fields=fields)


def encoder_decoder(model: str, layers: int = FEW, name: str = "", **fields: object) -> Iterator[tuple[str, Case]]:
    fields = PIECES | fields
    training, test = (partial(batches.translations, split=split) for split in ("train", "test"))
    yield f"{name or model}, training step", Case(model, TRANSLATE, train, training, ">= 1.2", layers, fields=fields)
    case = Case(model, TRANSLATE, write(20, beams=4), partial(test, size=32), ">= 1.1", layers, 20, fields)
    yield f"{name or model}, beam search", case


ENCODERS = ("modernbert-base", "nomic-embed-text-v1.5", "eurobert-210m", "gte-multilingual-base", "jina-embeddings-v3")
ENCODERS += ("electra-small", "mpnet-base", "albert-base-v2", "deberta-v3-base", "embeddinggemma-300m")
ENCODER_DECODERS = ("t5-small", "flan-t5-base", "nllb-200-distilled-600m", "pegasus-large", "blenderbot-400m-distill")
RAGGED, FULL, SHORTER = batches.ragged, batches.full, partial(batches.ragged, longest=256)
BERT = partial(Case, "bert-base")
CASES: dict[str, Case] = {
    "BERT, inference": BERT(READ, forward, RAGGED, ">= 1.7"),
    "BERT, inference, no padding": BERT(READ, forward, FULL, ">= 0.97"),
    "BERT, training step": BERT(CLASSIFY, train, partial(batches.classified, make=RAGGED), ">= 1.6"),
    "BERT, training step, bfloat16 autocast": BERT(
        CLASSIFY, partial(train, autocast=True), partial(batches.classified, make=RAGGED)
    ),
    "BERT, MLM step": BERT(MASK, train, partial(batches.masked, make=RAGGED), ">= 2.0"),
    "BERT, MLM step, no padding": BERT(MASK, train, partial(batches.masked, make=FULL), ">= 1.2"),
    "MiniLM, training step at 256": BERT(
        CLASSIFY, train, partial(batches.classified, make=SHORTER), layers=6, fields=MINILM
    ),
    **dict(decoder("GPT-2", "gpt2", 12)),
    "GPT-2, prefill": Case("gpt2", WRITE, prefill, partial(batches.random_ids, rows=1, length=1024), ">= 1.0"),
    **{name: case for model in ENCODERS for name, case in encoder(model)},
    **dict(decoder("Qwen3", "qwen3-0.6b", FEW)),
    **dict(decoder("Gemma 3", "gemma-3-270m", FEW)),
    **dict(decoder("Pythia", "pythia-160m", FEW)),
    **dict(encoder_decoder("opus-mt", 4, "Marian, 9M", **NINE_MILLION)),
    **dict(encoder_decoder("opus-mt", 6, "Marian, opus-mt")),
    **{name: case for model in ENCODER_DECODERS for name, case in encoder_decoder(model)},
}
#: what of these is also measured in memory, and the goal
MEMORY = {"BERT, MLM step": "<= 0.45", "BERT, MLM step, no padding": "", "GPT-2, training step, full": "<= 0.6"}
MEMORY |= {"Qwen3, training step, ragged": "<= 0.6", "Gemma 3, training step, ragged": "<= 0.6"}


def timed(name: str, settings: Settings) -> tuple[str, str, float, str]:
    """The official time, the zoo's, the one over the other, and the goal."""
    case = CASES[name]
    result = interleave(*map(case.step, case.pair(settings)), case.inputs(settings))
    calls, unit = (case.tokens, "ms/token") if case.tokens else (1, "ms")
    official, zoo = (f"{1000 * seconds / calls:.1f} {unit}" for seconds in (result.official, result.zoo))
    return official, zoo, result.ratio, case.goal


def remembered(name: str, settings: Settings) -> tuple[str, str, float, str]:
    """Official memory, the zoo's, the second over the first, and the goal."""
    official, zoo = (memory.of_step(side, name, settings) for side in (0, 1))
    return f"{official / 2**30:.2f} GiB", f"{zoo / 2**30:.2f} GiB", zoo / official, MEMORY[name]


def results(settings: Settings, names: list[str], of_memory: bool = False) -> Iterator[list[str]]:
    for name in names:
        official, zoo, ratio, goal = (remembered if of_memory else timed)(name, settings)
        yield [name + ", peak memory" * of_memory, official, zoo, f"{ratio:.2f}", goal]


def main(
    only: Annotated[str, typer.Option(help="Run those whose name holds this.")] = "",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cuda" if torch.cuda.is_available() else "cpu",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "",
    attention: Annotated[str, typer.Option(help="Attention implementation of both sides.")] = "sdpa",
    rounds: Annotated[int, typer.Option(help="Batches that count.")] = 5,
    layers: Annotated[int | None, typer.Option(help="Layers of the models; by default those of each case.")] = None,
    of_memory: Annotated[bool, typer.Option("--memory", help="Measure memory, not time.")] = False,
) -> None:
    """Times the zoo against the official classes: interleaved, medians, ratio."""
    dtype = dtype or ("bfloat16" if device == "cuda" else "float32")
    settings = Settings(device, getattr(torch, dtype), attention, rounds, layers)
    names = [name for name in (MEMORY if of_memory else CASES) if only.lower() in name.lower()]
    print(f"{device}, {dtype}, {attention}")
    table(["benchmark", "official", "zoo", "ratio", "goal"], results(settings, names, of_memory))
