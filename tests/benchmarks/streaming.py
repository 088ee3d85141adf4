"""`python -m tests.benchmarks.streaming [--gigabytes 2]`: how fast a stream is read, and in how much memory.

A corpus is generated in a temporary folder, in a few large files, and streamed through the whole pipeline of
`recipes/pretrain_bert.py`: read, split, tokenized, paired, masked, batched. First some thousand batches are made for
1, 2 and 4 processes and by so many workers, to see what each reads, and how fast. The processes run one after another,
so that none waits for a core.

Then the corpus is read once to its end; the first batches are trained on, and one of so many of the others. What counts
is the peak of this process and its workers above what it held after a first step: weights, gradients, Adam's state,
libraries.
"""

import gc
import json
import random
import tempfile
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Annotated

import numpy as np
import psutil
import torch
import typer
from torch.utils.data import DataLoader

from tfm_zoo.training.run import keep_few_kernels
from tfm_zoo.training.streaming.documents import Padding, load_documents
from tfm_zoo.training.streaming.streams import Stream, StreamBatches
from tfm_zoo.training.tasks.pretraining import (
    PAIRS,
    Masking,
    PretrainingExamples,
    PretrainingOptions,
    losses,
    new_encoder,
)

from .peak_memory import resident

SHARDS = 8
SIZES = "hidden_size=256,num_hidden_layers=4,num_attention_heads=4,intermediate_size=1024"


def write_corpus(folder: Path, size: int, seed: int = 0) -> None:
    """Files of JSON lines, `size` bytes in all: documents of 3 to 60 sentences of random words."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("etaoinshrdlucm", k=rng.randint(2, 9))) for _ in range(20_000)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    sentences = [" ".join(rng.choices(words, weights, k=rng.randint(4, 24))).capitalize() + "." for _ in range(50_000)]
    for shard in range(SHARDS):
        with open(folder / f"{shard}.jsonl", "w") as file:
            while file.tell() < size // SHARDS:
                file.write(json.dumps({"text": " ".join(rng.choices(sentences, k=rng.randint(3, 60)))}) + "\n")


def print_rates(stream: Stream, collate: Padding, batch_size: int, steps: int) -> None:
    """Tokens that a process makes examples of, and seconds that it takes; and seconds with workers."""
    make_examples, made = stream.make_examples, []

    def counted(texts: list[str], rng: np.random.Generator) -> list[dict]:
        examples = make_examples(texts, rng)
        made.append(sum(len(example["input_ids"]) for example in examples))
        return examples

    def timed(workers: int, **division: int) -> float:
        batches = StreamBatches(replace(stream, make_examples=counted), collate=collate, max_steps=steps, **division)
        start = perf_counter()
        for _ in batches.steps(DataLoader(batches, batch_size=None, collate_fn=tuple, num_workers=workers)):
            pass
        return perf_counter() - start

    whole = 0
    for processes in (1, 2, 4):
        for index in range(processes):
            made.clear()
            seconds = timed(0, per_device=batch_size // processes, num_processes=processes, process_index=index)
            whole = whole or sum(made)
            share = sum(made) * processes / whole
            print(f"process {index} of {processes}: {sum(made):,} tokens, {share:.3f} of its share, {seconds:.1f} s")
    for workers in (0, 1, 2, 4):
        seconds = timed(workers, per_device=batch_size)
        print(f"{workers} workers: {seconds:.1f} s, {steps * batch_size / seconds:,.0f} examples/s", flush=True)


def main(
    gigabytes: Annotated[float, typer.Option(help="Size of the corpus.")] = 2.0,
    steps: Annotated[int, typer.Option(help="Train on so many batches at the begin,")] = 300,
    every: Annotated[int, typer.Option(help="and on one of so many thereafter.")] = 1000,
    batch_size: Annotated[int, typer.Option(help="Examples of a batch.")] = 32,
    workers: Annotated[int, typer.Option(help="Processes that read the corpus to its end.")] = 1,
    rate_steps: Annotated[int, typer.Option(help="Batches for which reading is timed.")] = 1000,
) -> None:
    """Streams a generated corpus and prints rates, and the peak of memory above the model."""
    keep_few_kernels()
    with tempfile.TemporaryDirectory() as name:
        write_corpus(Path(name), int(gigabytes * 1e9))
        documents = load_documents(PretrainingOptions(train_file=f"{name}/*.jsonl", streaming=True, seed=0))
        texts = documents.train.first_texts(5_000_000)
        model, tokenizer = new_encoder(PretrainingOptions(config_overrides=SIZES), PAIRS, texts)
        make_examples = PretrainingExamples(tokenizer, documents.split, Masking(tokenizer), 128)
        stream = Stream(documents.train, make_examples, seed=0).dealt()
        print(f"{stream.readers} readers, {documents.train.rows.num_shards} shards")
        print_rates(stream, Padding(tokenizer), batch_size, rate_steps)
        optimizer = torch.optim.AdamW(model.train().parameters())

        def step(batch: dict[str, torch.Tensor]) -> None:
            losses(model, batch, is_zoo=True).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        ids = torch.full((2, 16), tokenizer.mask_token_id)
        step({"input_ids": ids, "labels": ids, "next_sentence_label": torch.zeros(2, dtype=torch.long)})
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        before = resident("VmRSS")

        batches = StreamBatches(stream, batch_size, collate=Padding(tokenizer), max_steps=10**9)
        loader = DataLoader(batches, batch_size=None, collate_fn=tuple, num_workers=workers)
        start, tokens, of_workers = perf_counter(), 0, 0
        for count, (batch,) in enumerate(batches.steps(loader)):
            if all(place.epoch for place in batches.starts.values()):
                break
            tokens += int(batch["attention_mask"].sum())
            if count < steps or count % every == 0:
                step(batch)
            if count % every == 0:
                children = psutil.Process().children(recursive=True)
                of_workers = max(of_workers, sum(child.memory_info().rss for child in children))
            if count % 10_000 == 0:
                print(f"{count:,} batches, {tokens:,} tokens: {(resident('VmHWM') - before) / 1e9:.2f} GB", flush=True)
        seconds = perf_counter() - start
        print(
            f"{gigabytes:g} GB, {count:,} batches of {batch_size}, {tokens:,} tokens, {seconds:.0f} s: at most"
            f" {(resident('VmHWM') - before) / 1e9:.2f} GB above {before / 1e9:.2f} GB, {model.num_parameters():,}"
            f" parameters; {of_workers / 1e9:.2f} GB in {workers} workers, with the libraries that they share"
        )


if __name__ == "__main__":
    typer.run(main)
