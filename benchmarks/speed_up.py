"""The model that you have, untouched and sped up: encoding, scoring, a training step; what taking over costs a call.
And `CorpusReader`, beside `encode`."""

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import process_time
from typing import Annotated

import numpy as np
import torch
import typer
from sentence_transformers import CrossEncoder, SentenceTransformer
from torch.nn.functional import cosine_similarity
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

import tfm_zoo

from .batches import MINILM, texts
from .pairs import forward
from .timing import compare, in_turn, ratio, seconds, table

TEXTS = {"Rotten Tomatoes": "rotten_tomatoes", "IMDB": "imdb"}
TYPES = (None, "bfloat16", "int8")
QUERY = "Was the film worth the time?"
Rows = Iterator[list[str]]


def sped_up(make: Callable, types: tuple[str | None, ...] = TYPES) -> dict[str, object]:
    """The untouched object, and one for each type of weights."""
    return {"untouched": make()} | {dtype or "its own type": tfm_zoo.speed_up(make(), dtype) for dtype in types}


def timed(what: str, models: dict, run: Callable, rounds: int, vectors: dict | None = None) -> Rows:
    """A row for each object, all of which run in turn."""
    runs = {name: lambda _, model=model: run(model) for name, model in models.items()}
    times = in_turn(runs, range(rounds + 1))
    for name, took in times.items():
        cosine = f"{cosine_similarity(vectors['untouched'], vectors[name]).min():.4f}" if vectors else ""
        yield [what, name, f"{median(took) * 1e3:.1f} ms", f"{ratio(times['untouched'], took):.2f}", cosine]


def as_given(model: SentenceTransformer, texts: list[str]) -> None:
    with torch.inference_mode():
        for start in range(0, len(texts), 32):
            model(model.preprocess(texts[start : start + 32]))


def encode(encoder: Path, count: int, rounds: int) -> Rows:
    models = sped_up(lambda: SentenceTransformer(str(encoder), device="cpu"))
    for title, name in TEXTS.items():
        found = texts(name, count)
        vectors = {name: torch.tensor(model.encode(found)) for name, model in models.items()}
        yield from timed(f"encode, {count} of {title}", models, lambda each, t=found: each.encode(t), rounds, vectors)
        yield from timed(f"as given, {count} of {title}", models, lambda each, t=found: as_given(each, t), rounds)


def corpus(encoder: Path, count: int, rounds: int) -> Rows:
    """`CorpusReader` beside `encode`, of a model that takes means. (In bfloat16 if the CPU has instructions for it.)"""
    for dtype in ("float32", "bfloat16"):
        model = SentenceTransformer(str(encoder), device="cpu", model_kwargs={"dtype": dtype})
        ways = {"untouched": model.encode}
        for name, options in {"CorpusReader": {"dtype": dtype}, "CorpusReader, packed": {"pack": dtype}}.items():
            reader = tfm_zoo.CorpusReader.from_pretrained(encoder, **options)
            ways[name] = lambda found, reader=reader: np.stack([each["embedding"] for each in reader(found)])
        for title, name in TEXTS.items():
            found = texts(name, count)
            vectors = {name: torch.tensor(way(found)) for name, way in ways.items()}
            yield from timed(f"{count} of {title}, {dtype}", ways, lambda way, t=found: way(t), rounds, vectors)


def predict(encoder: Path, count: int, rounds: int) -> Rows:
    """Random weights in the head: times do not depend on them."""
    pairs, scorer = [(QUERY, text) for text in texts("imdb", count)], CrossEncoder(str(encoder), num_labels=1)
    models = sped_up(lambda: copy.deepcopy(scorer))
    yield from timed(f"CrossEncoder.predict, {count} of IMDB", models, lambda each: each.predict(pairs), rounds)


def train(encoder: Path, count: int, rounds: int) -> Rows:
    tokenizer, found = AutoTokenizer.from_pretrained(encoder), texts("imdb", count)
    official = AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=2).train()
    models, options = sped_up(lambda: copy.deepcopy(official), (None,)), {"truncation": True, "max_length": 512}
    for title, rows in (("as given", found), ("group_by_length", sorted(found, key=len))):
        parts = [rows[start : start + 16] for start in range(0, len(rows), 16)]
        batches = [tokenizer(part, padding=True, return_tensors="pt", **options) for part in parts]

        def step(model: torch.nn.Module, batches=batches) -> None:
            for batch in batches:
                model(**batch, labels=torch.arange(len(batch["input_ids"])) % 2).loss.backward()
                model.zero_grad()

        yield from timed(f"training steps, {title}", models, step, rounds)


def cost(encoder: Path, count: int, rounds: int) -> Rows:
    """Of one short text without padding, where there is nothing to gain: the process's own time."""
    official = AutoModel.from_pretrained(encoder).eval()
    fast, ids = tfm_zoo.speed_up(copy.deepcopy(official)), torch.randint(1000, 20000, (1, 8))
    inputs = [{"input_ids": ids, "attention_mask": torch.ones_like(ids)}] * (1 + 50 * rounds)
    untouched, own, _ = compare(forward(official), forward(fast), inputs, clock=process_time)
    parts = {"the look at what was taken over": fast.forward.watch.is_same, "its tensors": fast.forward.call.twin.bind}
    took = {what: median(seconds(part, clock=process_time) for _ in range(500)) for what, part in parts.items()}
    for what, each in {"untouched": untouched, "its own type": own, **took}.items():
        yield ["a call of one short text", what, f"{each * 1e3:.3f} ms", f"{untouched / each:.2f}", ""]


PARTS = {"encode": encode, "predict": predict, "train": train, "cost": cost, "corpus": corpus}


def main(
    encoder: Annotated[Path, typer.Option(help="folder of an encoder")] = MINILM,
    only: Annotated[str, typer.Option(help=f"one of {', '.join(PARTS)}")] = "",
    count: Annotated[int, typer.Option(help="texts of each kind")] = 512,
    rounds: Annotated[int, typer.Option(help="of which each figure is the median")] = 5,
) -> None:
    """Times official objects beside the same objects sped up, in turn, in one process."""
    torch.manual_seed(0)
    rows = (row for name, part in PARTS.items() if only in ("", name) for row in part(encoder, count, rounds))
    table(["what", "object", "time", "untouched / it", "least cosine"], rows)
