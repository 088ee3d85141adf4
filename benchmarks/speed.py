"""The zoo beside the official classes, case by case: a batch, a step, a token; time and memory."""

import gc
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

import torch
import typer

from . import batches
from .memory import resident
from .pairs import MINILM, Pair, Settings, Step, forward, pair, prefill, train, write
from .timing import compare, table

CLASSIFY, MASK, READ = "AutoModelForSequenceClassification", "AutoModelForMaskedLM", "AutoModel"
WRITE, TRANSLATE = "AutoModelForCausalLM", "AutoModelForSeq2SeqLM"
#: Marian of opus-mt's vocabulary would spend most of a step on logits; padding is also what its decoder starts with
PIECES = {"vocab_size": batches.PIECES, "eos_token_id": 0, "pad_token_id": batches.PADDING}
PIECES |= {"decoder_start_token_id": batches.PADDING}
#: as in published ones, padding is last: CTranslate2 takes the last row of a Marian's embeddings for it
MARIAN = {"vocab_size": batches.PIECES + 1, "pad_token_id": batches.PIECES, "decoder_start_token_id": batches.PIECES}
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

    def pair(self, settings: Settings) -> Pair:
        found = Settings(**vars(settings) | {"layers": settings.layers or self.layers})
        return pair(self.model, self.head, found, self.is_training, **self.fields)

    @property
    def is_training(self) -> bool:
        return getattr(self.step, "func", self.step) is train

    def inputs(self, settings: Settings) -> list[dict]:
        found = self.data(settings.rounds)
        return [{name: each.to(settings.device) for name, each in batch.items()} for batch in found]


def decoder(name: str, model: str, layers: int) -> Iterator[tuple[str, Case]]:
    """The cases of a decoder: tokens of one sequence and of several, and steps on full and on ragged rows."""
    for rows in (1, 8):
        data = partial(batches.random_ids, rows=rows, length=32)
        yield f"{name}, decoding, batch {rows}", Case(model, WRITE, write(64), data, ">= 1.0", layers, tokens=64)
    full, ragged = partial(batches.labelled, rows=2, length=256), partial(batches.conversations, length=256)
    yield f"{name}, training step, full", Case(model, WRITE, train, full, ">= 1.0", layers)
    yield f"{name}, training step, ragged", Case(model, WRITE, train, ragged, ">= 1.2", layers)


def encoder(model: str, **fields: object) -> Iterator[tuple[str, Case]]:
    fields |= {"vocab_size": 30522, "pad_token_id": 1, "bos_token_id": None, "eos_token_id": None}
    for kind, goal in (("ragged", ">= 1.5"), ("full", ">= 0.97")):
        data = partial(getattr(batches, kind), size=8)
        yield f"{model}, inference, {kind}", Case(model, READ, forward, data, goal, FEW, fields=fields)
        if model != "embeddinggemma-300m":  # whose official class has no head
            data = partial(batches.classified, make=data)
            yield f"{model}, training step, {kind}", Case(model, CLASSIFY, train, data, goal, FEW, fields=fields)


def encoder_decoder(model: str, layers: int = FEW, name: str = "", **fields: object) -> Iterator[tuple[str, Case]]:
    case, beams, short = partial(Case, model, TRANSLATE, fields=PIECES | fields), 4, 20
    yield f"{name or model}, training step", case(train, batches.translations, ">= 1.2", layers)
    data = partial(batches.translations, size=32)
    yield f"{name or model}, beam search", case(write(short, beams), data, ">= 1.1", layers, tokens=short)


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
    **dict(encoder_decoder("opus-mt", 4, "Marian, 9M", **MARIAN | NINE_MILLION)),
    **dict(encoder_decoder("opus-mt", 6, "Marian, opus-mt", **MARIAN)),
    **{name: case for model in ENCODER_DECODERS for name, case in encoder_decoder(model)},
}
#: what of these is also measured in memory, and the goal
MEMORY = {"BERT, MLM step": "<= 0.45", "BERT, MLM step, no padding": "<= 0.65", "GPT-2, training step, full": "<= 0.6"}
MEMORY |= {"Qwen3, training step, ragged": "<= 0.6", "Gemma 3, training step, ragged": "<= 0.6"}


def timed(name: str, settings: Settings) -> tuple[str, str, float, str]:
    """The official time, the zoo's, the one over the other, and the goal."""
    case = CASES[name]
    inputs = case.inputs(settings)
    warm = {name: each[:, :32].contiguous() if each.dim() == 2 else each for name, each in inputs[0].items()}
    *times, ratio = compare(*map(case.step, case.pair(settings)), [warm, *inputs])
    calls, unit = (case.tokens, "ms/token") if case.tokens else (1, "ms")
    official, zoo = (f"{1000 * seconds / calls:.1f} {unit}" for seconds in times)
    return official, zoo, ratio, case.goal


def remembered(name: str, settings: Settings) -> tuple[str, str, float, str]:
    """Official memory of a training step, the zoo's, the second over the first, and the goal."""
    taken = []
    for side in (0, 1):
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            taken.append(process.submit(peak, side, name, settings).result())
    official, zoo = taken
    return f"{official / 2**30:.2f} GiB", f"{zoo / 2**30:.2f} GiB", zoo / official, MEMORY[name]


def peak(side: int, name: str, settings: Settings) -> int:
    """Bytes above weights and gradients at the peak of a training step. `side`: 0 is the official class, 1 the zoo's.
    It needs a process of its own."""
    batch, model = CASES[name].inputs(settings)[0], CASES[name].pair(settings)[side]
    # A short step first: threads, caches and the gradients themselves are there before the count begins.
    ids = batch["input_ids"][:2, :16].contiguous()
    model(input_ids=ids, labels=ids).loss.backward()
    gc.collect()
    is_cuda = settings.device == "cuda"
    if is_cuda:
        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = torch.cuda.memory_allocated() if is_cuda else resident("VmRSS")
    model(**batch).loss.backward()
    return (torch.cuda.max_memory_allocated() if is_cuda else resident("VmHWM")) - before


def results(settings: Settings, names: Iterable[str], of_memory: bool = False) -> Iterator[list[str]]:
    for name in names:
        gc.collect()  # the models of the last case: memory is short
        official, zoo, ratio, goal = (remembered if of_memory else timed)(name, settings)
        yield [name + ", peak memory" * of_memory, official, zoo, f"{ratio:.2f}", goal]


def main(
    only: Annotated[str, typer.Option(help="Run those whose name holds this.")] = "",
    rounds: Annotated[int, typer.Option(help="Batches that count.")] = 5,
    layers: Annotated[int | None, typer.Option(help="Layers of the models; by default those of each case.")] = None,
    of_memory: Annotated[bool, typer.Option("--memory", help="Measure memory, not time.")] = False,
) -> None:
    """Times the zoo against the official classes, in float32, with sdpa: in turn, medians, ratio."""
    names = [name for name in (MEMORY if of_memory else CASES) if only.lower() in name.lower()]
    table(
        ["benchmark", "official", "zoo", "ratio", "goal"],
        results(Settings(rounds=rounds, layers=layers), names, of_memory),
    )
