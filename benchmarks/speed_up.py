"""The model that you have, untouched and sped up: encoding, scoring, a training step; what taking over costs a call."""

import copy
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time
from typing import Annotated

import numpy as np
import torch
import typer
from datasets import load_dataset
from sentence_transformers import CrossEncoder, SentenceTransformer
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, PreTrainedModel

import tfm_zoo

from .batches import SHARED
from .timing import interleave, seconds

TEXTS = {"Rotten Tomatoes": "rotten_tomatoes", "IMDB": "imdb"}
TYPES = (None, "bfloat16", "int8")
QUERY = "Was the film worth the time?"


def texts_of(name: str, count: int) -> list[str]:
    return load_dataset(str(SHARED / "datasets" / name), split="test").shuffle(seed=0)[:count]["text"]


def encoders(encoder: Path) -> dict[str | None, SentenceTransformer]:
    """The untouched object, and one for each type of weights."""
    made = {dtype: tfm_zoo.speed_up(SentenceTransformer(str(encoder), device="cpu"), dtype) for dtype in TYPES}
    return {"untouched": SentenceTransformer(str(encoder), device="cpu")} | made


def in_turn(runs: dict, rounds: int) -> dict:
    """Median seconds of each run, all of them in turn."""
    times = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            took = seconds(run)
            if turn:
                times[name].append(took)
    return {name: median(each) for name, each in times.items()}


def show(what: str, times: dict, fidelity: dict | None = None) -> None:
    first = times["untouched"]
    for name, took in times.items():
        title = name if name == "untouched" else f"sped up, {name or 'its own type'}"
        alike = "" if not fidelity or name not in fidelity else f", lowest cosine {fidelity[name]:.4f}"
        print(f"{what:42} {title:24} {took * 1e3:9.1f} ms  {first / took:5.2f} times{alike}")


def encode(encoder: Path, count: int, rounds: int) -> None:
    models = encoders(encoder)
    for title, name in TEXTS.items():
        texts = texts_of(name, count)
        vectors = {dtype: model.encode(texts, normalize_embeddings=True) for dtype, model in models.items()}
        alike = {dtype: (each * vectors["untouched"]).sum(axis=1).min() for dtype, each in vectors.items()}
        show(
            f"encode, {count} of {title}",
            in_turn({k: lambda m=m, texts=texts: m.encode(texts) for k, m in models.items()}, rounds),
            alike,
        )

        def as_given(model: SentenceTransformer, texts=texts) -> None:
            with torch.inference_mode():
                for start in range(0, len(texts), 32):
                    model(model.preprocess(texts[start : start + 32]))

        show(f"as given, {count} of {title}", in_turn({k: lambda m=m: as_given(m) for k, m in models.items()}, rounds))


def predict(encoder: Path, count: int, rounds: int) -> None:
    """Random weights in the head: times do not depend on them."""
    pairs = [(QUERY, text) for text in texts_of("imdb", count)]
    models = {"untouched": CrossEncoder(str(encoder), num_labels=1, device="cpu")}
    models |= {dtype: tfm_zoo.speed_up(copy.deepcopy(models["untouched"]), dtype) for dtype in TYPES}
    show(
        f"CrossEncoder.predict, {count} of IMDB",
        in_turn({k: lambda m=m: m.predict(pairs) for k, m in models.items()}, rounds),
    )


def train(encoder: Path, count: int, rounds: int) -> None:
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    official = AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=2).train()
    models = {"untouched": official, None: tfm_zoo.speed_up(copy.deepcopy(official))}
    texts = texts_of("imdb", count)
    for title, rows in (("as given", texts), ("group_by_length", sorted(texts, key=len))):
        starts = range(0, len(rows), 16)
        batches = [
            tokenizer(rows[i : i + 16], padding=True, truncation=True, max_length=512, return_tensors="pt")
            for i in starts
        ]

        def step(model: PreTrainedModel, batches=batches) -> None:
            for batch in batches:
                labels = torch.arange(len(batch["input_ids"])) % 2
                model(**batch, labels=labels).loss.backward()
                model.zero_grad()

        show(f"training step, {title}", in_turn({k: lambda m=m: step(m) for k, m in models.items()}, rounds))


def cost(encoder: Path, count: int, rounds: int) -> None:
    """Of one short text without padding, where there is nothing to gain: the process's own time."""
    official = AutoModel.from_pretrained(encoder).eval()
    fast = tfm_zoo.speed_up(copy.deepcopy(official))
    ids = torch.randint(1000, 20000, (1, 8))
    inputs = [{"input_ids": ids, "attention_mask": torch.ones_like(ids)}] * (50 * rounds)

    def run(model: PreTrainedModel) -> Callable[[dict], None]:
        def call(batch: dict) -> None:
            with torch.inference_mode():
                model(**batch)

        return call

    found = interleave(run(official), run(fast), inputs, clock=process_time)
    stand_in = fast.forward
    looked = np.median([seconds(stand_in.watch.is_same, clock=process_time) for _ in range(500)])
    bound = np.median([seconds(stand_in.call.twin.bind, clock=process_time) for _ in range(500)])
    print(f"a call of one short text: official {found.official * 1e3:.2f} ms, sped up {found.zoo * 1e3:.2f} ms")
    share = (looked + bound) / found.official
    print(f"of it the look at what was taken over {looked * 1e6:.0f} us, its tensors {bound * 1e6:.0f} us: {share:.1%}")


PARTS = {"encode": encode, "predict": predict, "train": train, "cost": cost}


def main(
    encoder: Annotated[Path, typer.Option(help="folder of an encoder")] = SHARED / "checkpoints/all-MiniLM-L6-v2",
    only: Annotated[str, typer.Option(help=f"one of {', '.join(PARTS)}")] = "",
    count: Annotated[int, typer.Option(help="texts of each kind")] = 512,
    rounds: Annotated[int, typer.Option(help="of which each figure is the median")] = 5,
) -> None:
    """Times official objects beside the same objects sped up, in turn, in one process."""
    torch.manual_seed(0)
    for name, part in PARTS.items():
        if only in ("", name):
            part(encoder, count, rounds)
